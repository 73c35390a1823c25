"""What a run leaves behind: it goes when the next run needs its module, and its memory goes back."""

import gc
import weakref

import pytest
import torch
from support.tiny import Tiny, loader, trainer
from torch import nn

from core import Callback
from core.errors import InterlockError


def held(made):
    """Return weak references to what takes memory in the run that ``made`` holds."""
    kept = {"optimizer": made.optimizers[0], "wrapped": made.model, "loop": made._run.loop}
    return {name: weakref.ref(value) for name, value in kept.items()}


def alive(references):
    return [name for name, reference in references.items() if reference() is not None]


@pytest.mark.parametrize("strategy", ["single_device", "ddp", "ddp_sharded", "zero", "fsdp"])
def test_memory_of_a_run_goes_back(strategy):
    """After end_run wrapped module, optimizers and loop are gone, while Trainer, module and last values are there."""
    made, module = trainer(strategy, 1), Tiny()
    made.fit(module, loader(), loader())
    references, metrics = held(made), made.callback_metrics
    assert alive(references) == ["optimizer", "wrapped", "loop"]
    made.end_run()
    gc.collect()
    assert alive(references) == []
    assert made.callback_metrics == metrics
    assert metrics.keys() == {"val_loss"}


def test_the_trainer_does_not_keep_the_module():
    """A Trainer whose run has ended does not keep the module in memory, and needs no collector of garbage for it."""
    made, module = trainer("single_device", 1, precision="16-mixed", accumulate_grad_batches=2), Tiny()
    made.fit(module, loader())
    references = {**held(made), "module": weakref.ref(module)}
    gc.collect()
    gc.disable()
    try:
        made.end_run()
        assert references["optimizer"]() is None
        del module
        gc.collect()
    finally:
        gc.enable()
    assert alive(references) == []


def test_a_run_that_fails_leaves_nothing():
    """When a run fails its optimizers go too, as soon as nobody looks at the error any more."""
    seen = {}

    class Failing(Tiny):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                seen.update(held(self.trainer))
                raise ValueError("enough")
            return super().training_step(batch, batch_idx)

    made = trainer("single_device", 1)
    with pytest.raises(ValueError, match="enough"):
        made.fit(Failing(), loader())
    gc.collect()
    assert alive(seen) == []


class Half(nn.Module):
    """Trains a part of another module."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    training_step = Tiny.training_step
    configure_optimizers = Tiny.configure_optimizers


@pytest.mark.parametrize("strategy", ["single_device", "ddp", "ddp_sharded", "fsdp"])
@pytest.mark.parametrize("whole", [True, False], ids=["the module", "a part of it"])
def test_another_trainer_takes_the_module(strategy, whole):
    """The next Trainer on a module, or on a part of it, ends the earlier one's run, and trains as if it were alone."""
    module, alone = Tiny(), Tiny()
    earlier = trainer(strategy, 1)
    earlier.fit(module, loader())
    references = held(earlier)
    alone.load_state_dict(module.state_dict())
    trainer("single_device", 1).fit(alone, loader())
    trainer("single_device", 1).fit(module if whole else Half(module.layer), loader())
    gc.collect()
    assert alive(references) == []
    assert torch.equal(module.layer.weight, alone.layer.weight)
    with pytest.raises(InterlockError, match="before\n  another Trainer takes the module"):
        earlier.save_checkpoint("late.ckpt")


def test_a_trainer_of_another_module_does_not_end_the_run(tmp_path):
    """A checkpoint can be saved after a run, also when another Trainer has trained another module meanwhile."""
    earlier, module = trainer("single_device", 1), Tiny()
    earlier.fit(module, loader())
    trainer("single_device", 1).fit(Tiny(), loader())
    earlier.save_checkpoint(tmp_path / "late.ckpt")
    assert (tmp_path / "late.ckpt").is_file()


def test_ending_an_earlier_run_leaves_the_later_group(tmp_path):
    """end_run of an earlier Trainer does not destroy the process group of a later one's run."""
    earlier, later = trainer("ddp", 1), trainer("ddp", 1)
    earlier.fit(Tiny(), loader())
    later.fit(Tiny(), loader())
    earlier.end_run()
    assert torch.distributed.is_initialized()
    later.save_checkpoint(tmp_path / "late.ckpt")
    later.end_run()
    assert not torch.distributed.is_initialized()


def test_a_run_inside_a_run():
    """A callback may evaluate the module with another Trainer: the run that goes on is not over, and is not ended."""

    class Evaluates(Callback):
        seen = 0.0

        def on_train_epoch_end(self, trainer_, module):
            inner = trainer("single_device", 1)
            self.seen = inner.validate(module, loader(), verbose=False)[0]["val_loss"]
            assert trainer_.optimizers

    callback = Evaluates()
    made, module = trainer("single_device", 1, callbacks=[callback]), Tiny()
    for epochs in (1, 2):
        made.max_epochs = epochs
        made.fit(module, loader())
        assert made.global_step == 10 * epochs
        with torch.no_grad():
            losses = [module.layer(batch).square().mean() for (batch,) in loader()]
        assert callback.seen == pytest.approx(float(torch.stack(losses).mean()))


def test_a_second_fit_goes_on_where_the_first_ended():
    """A second fit with more steps goes on inside the epoch that the first one's limit broke off."""

    class Noting(Tiny):
        def __init__(self):
            super().__init__()
            self.seen = []

        def training_step(self, batch, batch_idx):
            self.seen.append((self.current_epoch, batch_idx))
            return super().training_step(batch, batch_idx)

    made, module = trainer("single_device", 1, max_steps=4, max_epochs=-1), Noting()
    made.fit(module, loader())
    assert module.seen == [(0, batch) for batch in range(4)]
    made.max_steps = 12
    made.fit(module, loader())
    assert module.seen == [(0, batch) for batch in range(10)] + [(1, 0), (1, 1)]
