"""A module that a stage cannot run is refused before anything starts, with what to write."""

import pytest
import torch
from support.nets import Net, loader, quiet_trainer

from core import Module
from core.errors import InterlockError, WrongType


def test_a_class_in_place_of_a_module_is_refused():
    """fit(Net, loader) says that it takes an instance, and how to make one."""
    with pytest.raises(WrongType, match=r"not its class\n  hint: make one, Net\(\.\.\.\)"):
        quiet_trainer().fit(Net, loader())


def test_a_forgotten_super_init_is_named():
    """A module whose __init__ does not call super().__init__() is told that, not which attribute torch misses."""

    class Forgot(Net):
        def __init__(self):
            self.width = 4

    with pytest.raises(InterlockError, match=r"Forgot is not set up: its __init__ has to call super"):
        quiet_trainer().fit(Forgot(), loader())


@pytest.mark.parametrize("name", ["training_epoch_end", "validation_epoch_end", "test_epoch_end"])
def test_hooks_that_gathered_outputs_are_refused(name):
    """A module with an epoch_end hook of older days is refused, since its results would be lost silently."""
    old = type("Old", (Net,), {name: lambda self, outputs: None})
    with pytest.raises(InterlockError, match=f"{name} is from the past; write on_"):
        quiet_trainer().fit(old(), loader())


def test_a_hook_that_nobody_calls_is_warned_of():
    """A hook of older days that may have been left in unused gives a warning with the name of its successor."""
    old = type("Old", (Net,), {"on_epoch_end": lambda self: None})
    with pytest.warns(UserWarning, match=r"Old.on_epoch_end is called by nobody; write on_train_epoch_end"):
        quiet_trainer().fit(old(), loader())


def test_arguments_that_nobody_passes_are_refused():
    """training_step(batch, batch_idx, optimizer_idx) is refused with what to write, unless it has a default."""

    class Old(Net):
        def training_step(self, batch, batch_idx, optimizer_idx):
            return super().training_step(batch, batch_idx)

    class Tolerant(Net):
        def training_step(self, batch, batch_idx, optimizer_idx=None):
            return super().training_step(batch, batch_idx)

    with pytest.raises(InterlockError, match=r"takes optimizer_idx.*automatic_optimization = False"):
        quiet_trainer().fit(Old(), loader())
    trainer = quiet_trainer()
    trainer.fit(Tolerant(), loader())
    assert trainer.global_step == 4


def test_a_plain_module_may_have_methods_of_such_names():
    """In an nn.Module of no framework a method named on_epoch_end means what its author says, without a warning."""

    class Plain(torch.nn.Module):
        training_step = Net.training_step
        configure_optimizers = Net.configure_optimizers

        def __init__(self):
            super().__init__()
            self.layer, self.calls = torch.nn.Linear(4, 1), []

        def on_epoch_end(self):
            raise AssertionError("not a hook")

    assert not issubclass(Plain, Module)
    trainer = quiet_trainer()
    trainer.fit(Plain(), loader())
    assert trainer.global_step == 4


def test_validation_data_without_a_validation_step_are_told_and_not_read():
    """A module that brings validation data and has no validation_step trains; loaders given to fit are refused."""

    class Trains(Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).mean()

        def val_dataloader(self):
            raise AssertionError("nobody reads it")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-4)

    trainer = quiet_trainer()
    with pytest.warns(UserWarning, match="Trains has no validation_step: its validation data are not read"):
        trainer.fit(Trains(), loader(3))
    assert trainer.global_step == 3
    with pytest.raises(InterlockError, match="Trains has no validation_step, which fit with val_dataloaders calls"):
        trainer.fit(Trains(), loader(3), loader(3))


def test_a_step_for_several_loaders_takes_their_number():
    """With two loaders a step without dataloader_idx is refused with what to write; one of the batch alone is not."""

    class Plain(Net):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", batch.mean())

    class Alone(Net):
        def validation_step(self, batch):
            self.log("val_loss", batch.mean())

    with pytest.raises(InterlockError, match="validation_step is to read 2 loaders, and takes no dataloader_idx"):
        quiet_trainer().validate(Plain(), [loader(1), loader(2)], verbose=False)
    quiet_trainer().validate(Plain(), [loader(1)], verbose=False)
    assert len(quiet_trainer().validate(Alone(), [loader(1), loader(2)], verbose=False)) == 2


@pytest.mark.parametrize("name", ["optimizer_step", "optimizer_zero_grad", "configure_gradient_clipping"])
def test_hooks_that_took_the_number_of_an_optimizer_are_refused(name):
    """A hook with optimizer_idx, whose other arguments would arrive in the wrong places, is told today's signature."""
    old = type("Old", (Net,), {name: lambda self, epoch, batch_idx, optimizer, optimizer_idx=0: None})
    with pytest.raises(InterlockError, match=rf"{name} takes optimizer_idx, .*; write {name}\(self"):
        quiet_trainer().fit(old(), loader())


def test_what_torch_compile_returned_is_refused():
    """fit(torch.compile(module)) says where to compile, for the wrapper has the module's steps and not its class."""
    with pytest.raises(WrongType, match=r"not what torch\.compile returned\n  hint: .* self\.net = torch\.compile"):
        quiet_trainer().fit(torch.compile(Net()), loader())


def test_an_optimizer_step_that_trains_nothing_is_refused():
    """optimizer_step that neither hands on its closure nor calls it would leave training_step out: it is told so."""

    class Forgets(Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            optimizer.step()

    class Skips(Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            if batch_idx:
                optimizer.step(closure=optimizer_closure)
            else:
                optimizer_closure()

    with pytest.raises(InterlockError, match=r"Forgets\.optimizer_step left out the closure, so training_step"):
        quiet_trainer().fit(Forgets(), loader())
    skips = Skips()
    quiet_trainer().fit(skips, loader(2))
    assert skips.calls == [("train", 0), ("train", 1)]
