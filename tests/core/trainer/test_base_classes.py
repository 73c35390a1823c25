"""What an override may call with ``super()``, and what a data module can be made of."""

import inspect

import torch
from support.nets import Net, loader, quiet_trainer
from torch.utils.data import IterableDataset

from core import Callback, DataModule, Module
from core.module_hooks import ModuleHooks

HOOKS = [name for name in vars(ModuleHooks) if not name.startswith("_")]
DATA_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


def test_every_hook_of_a_module_may_call_its_base():
    """A module that fills each hook by calling super() trains and evaluates as one without them."""

    def forwarding(name):
        def hook(self, *arguments):
            self.called.add(name)
            return getattr(super(Forwards, self), name)(*arguments)

        return hook

    class Forwards(Net):
        def __init__(self):
            super().__init__()
            self.called = set()

        def test_step(self, batch, batch_idx):
            self.log("tested", batch.mean())

    for name in (*HOOKS, *DATA_HOOKS, "optimizer_step", "optimizer_zero_grad", "configure_gradient_clipping"):
        setattr(Forwards, name, forwarding(name))
    torch.manual_seed(1)
    filled = Forwards()
    torch.manual_seed(1)
    plain = Net()
    for module in (filled, plain):
        trainer = quiet_trainer()
        trainer.fit(module, loader(3), loader(2))
        trainer.validate(module, loader(2), verbose=False)
    trainer.test(filled, loader(2), verbose=False)
    trainer.predict(filled, loader(2))
    assert torch.equal(filled.layer.weight, plain.layer.weight)
    assert {"on_train_start", "on_train_batch_start", "on_before_zero_grad", "on_test_end"} <= filled.called
    assert set(HOOKS) - filled.called == {"on_save_checkpoint", "on_load_checkpoint"}


def test_a_module_has_the_hooks_of_a_callback():
    """Each hook of a callback that a module can have is one of the module, without its first two arguments."""
    own = {"on_sanity_check_start", "on_sanity_check_end", "on_exception"}
    for name, method in inspect.getmembers(Callback, inspect.isfunction):
        if not name.startswith(("on_", "setup", "teardown")) or name in own:
            continue
        theirs = [each for each in inspect.signature(method).parameters if each not in ("trainer", "module")]
        assert list(inspect.signature(getattr(Module, name)).parameters) == theirs, name


def test_transfer_hooks_of_a_data_module_may_call_their_base():
    """A data module's transfer hooks can build on those of its base class."""

    class Doubling(DataModule):
        def train_dataloader(self):
            return loader(2)

        def on_before_batch_transfer(self, batch, dataloader_idx):
            return super().on_before_batch_transfer([batch], dataloader_idx)

        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return super().on_after_batch_transfer(batch, dataloader_idx)[0] * 2

    class Sees(Net):
        def training_step(self, batch, batch_idx):
            self.calls.append(float(batch.max()))
            return super().training_step(batch, batch_idx)

    module = Sees()
    quiet_trainer().fit(module, datamodule=Doubling())
    assert [call for call in module.calls if isinstance(call, float)] == [2.0, 6.0]


class Endless(IterableDataset):
    def __iter__(self):
        yield from torch.ones(6, 4)


def test_a_data_module_can_be_made_of_datasets():
    """from_datasets gives a loader for each dataset, shuffled for training only, and passes on what is left."""

    class Named(DataModule):
        def __init__(self, name):
            self.name = name

    rows = torch.arange(8.0).unsqueeze(1).expand(-1, 4)
    made = Named.from_datasets(rows, [rows, rows[:2]], predict_dataset=rows, batch_size=4, name="mine")
    assert made.name == "mine"
    assert isinstance(made.train_dataloader().sampler, torch.utils.data.RandomSampler)
    assert [len(each) for each in made.val_dataloader()] == [2, 1]
    assert not hasattr(made, "test_dataloader")
    assert torch.equal(torch.cat(list(made.predict_dataloader())), rows)
    module = Net()
    quiet_trainer().fit(module, datamodule=made)
    assert [call for call in module.calls if call[0] == "train"] == [("train", 0), ("train", 1)]
    streamed = DataModule.from_datasets(Endless(), batch_size=3).train_dataloader()
    assert [len(batch) for batch in streamed] == [3, 3]


def test_log_dict_takes_what_log_takes_in_the_same_places():
    """log_dict(values, True) shows them in the bar, as log does by its third argument."""

    class Logs(Net):
        def training_step(self, batch, batch_idx):
            self.log_dict({"a": batch.mean(), "b": 1.0}, True, on_epoch=True, batch_size=3)
            return super().training_step(batch, batch_idx)

    trainer = quiet_trainer()
    trainer.fit(Logs(), loader(2))
    assert {"a_step", "b_step", "a_epoch", "b_epoch"} <= trainer.progress_bar_metrics.keys()


def test_all_gather_of_one_rank_adds_no_dimension():
    """With one rank all_gather gives tensors as they are, and numbers as tensors."""

    class Gathers(Net):
        def training_step(self, batch, batch_idx):
            self.gathered = self.all_gather({"tensor": batch, "nested": [2.5, True]})
            assert self.gathered["tensor"] is batch
            return super().training_step(batch, batch_idx)

    module = Gathers()
    quiet_trainer().fit(module, loader(1))
    assert [(each.dtype, each.item()) for each in module.gathered["nested"]] == [
        (torch.float32, 2.5),
        (torch.bool, True),
    ]
