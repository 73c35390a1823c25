"""What people read off a Trainer is there: before a run, in each stage, and afterwards."""

import pytest
import torch
from support.nets import Net, loader, quiet_trainer
from torch.utils.data import DataLoader, IterableDataset

from core import Callback, Trainer
from core.errors import InvalidArgument
from core.plugins import Strategy

COUNTERS = ["current_epoch", "global_step", "max_epochs", "max_steps", "min_epochs", "min_steps"]
RANKS = ["global_rank", "local_rank", "node_rank", "world_size", "num_devices", "num_nodes", "is_global_zero"]
METRICS = ["callback_metrics", "logged_metrics", "progress_bar_metrics"]
PLACES = ["logger", "loggers", "log_dir", "default_root_dir", "ckpt_path"]
CALLBACKS = [
    *["callbacks", "checkpoint_callback", "checkpoint_callbacks"],
    *["early_stopping_callback", "early_stopping_callbacks"],
]
PARTS = [
    *["optimizers", "lr_scheduler_configs", "model", "lightning_module", "datamodule", "strategy", "accelerator"],
    *["precision", "precision_plugin", "scaler", "train_dataloader", "val_dataloaders", "test_dataloaders"],
    *["predict_dataloaders", "profiler"],
]
SIZES = [
    *["estimated_stepping_batches", "num_training_batches", "num_val_batches", "num_sanity_val_batches"],
    *["num_test_batches", "num_predict_batches"],
]
STATES = [
    *["training", "validating", "testing", "predicting", "sanity_checking", "is_last_batch", "interrupted"],
    *["received_sigterm", "should_stop"],
]
ALL = [*COUNTERS, *RANKS, *METRICS, *PLACES, *CALLBACKS, *PARTS, *SIZES, *STATES]


def test_all_can_be_read_before_a_run():
    """Before any run each attribute has a value, and those of the peer's Trainer are among them."""
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    for name in ALL:
        getattr(trainer, name)
    assert (trainer.global_step, trainer.world_size, trainer.is_global_zero) == (0, 1, True)
    assert trainer.num_val_batches == trainer.num_sanity_val_batches == trainer.val_dataloaders == []


class Reads(Callback):
    """Notes what is read in each stage."""

    def __init__(self):
        self.seen = {}

    def note(self, what, trainer):
        for name in ALL:
            getattr(trainer, name)
        states = [name for name in STATES if getattr(trainer, name) and name != "is_last_batch"]
        self.seen[what] = (states, {name: getattr(trainer, name) for name in SIZES[1:]})

    def on_sanity_check_start(self, trainer, module):
        self.note("sanity", trainer)

    def on_train_start(self, trainer, module):
        self.note("train", trainer)

    def on_validation_start(self, trainer, module):
        if not trainer.sanity_checking:
            self.note("validation", trainer)

    def on_test_start(self, trainer, module):
        self.note("test", trainer)

    def on_predict_start(self, trainer, module):
        self.note("predict", trainer)


class WithTest(Net):
    def test_step(self, batch, batch_idx):
        self.log("tested", batch.mean())

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        return None


def test_each_stage_says_what_it_is_and_how_long():
    """States and numbers of batches are those of the stage that runs, limits included."""
    reads = Reads()
    trainer = quiet_trainer(callbacks=[reads], limit_train_batches=4, limit_val_batches=3, limit_test_batches=0.5)
    module = WithTest()
    trainer.fit(module, loader(5), [loader(6), loader(1)])
    nothing = {"num_test_batches": [], "num_predict_batches": []}
    sizes = {"num_training_batches": 4, "num_val_batches": [3, 1], "num_sanity_val_batches": [2, 1], **nothing}
    assert reads.seen["train"] == (["training"], sizes)
    assert reads.seen["validation"] == (["validating"], sizes)
    assert reads.seen["sanity"][0] == ["sanity_checking"]
    assert reads.seen["sanity"][1]["num_sanity_val_batches"] == [2, 1]
    trainer.validate(module, loader(6), verbose=False)
    assert reads.seen["validation"][1]["num_val_batches"] == [3]
    assert reads.seen["validation"][1]["num_sanity_val_batches"] == []
    trainer.test(module, loader(4), verbose=False)
    assert reads.seen["test"][0] == ["testing"]
    assert reads.seen["test"][1]["num_test_batches"] == [2]
    trainer.predict(module, DataLoader(torch.ones(4, 4), 2))
    assert reads.seen["predict"][0] == ["predicting"]
    assert {name: size for name, size in reads.seen["predict"][1].items() if size} == {"num_predict_batches": [2]}


def test_a_run_that_was_broken_off_says_so():
    """Ctrl-C in a run leaves interrupted True until the next run begins; another error does not."""

    class Breaks(Net):
        error = KeyboardInterrupt

        def training_step(self, batch, batch_idx):
            raise self.error

    trainer, module = quiet_trainer(), Breaks()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(module, loader(2))
    assert trainer.interrupted
    module.error = ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        trainer.fit(module, loader(2))
    assert not trainer.interrupted


def test_print_is_for_rank_zero(capsys, monkeypatch):
    """trainer.print and module.print print as print does, on rank 0."""
    trainer = quiet_trainer()
    trainer.print("a", "b", sep="-")
    monkeypatch.setattr(Trainer, "global_rank", 1)
    trainer.print("hidden")
    assert capsys.readouterr().out == "a-b\n"


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.ones(3, 4)


@pytest.mark.parametrize("data", [loader(3), DataLoader(Stream(), 1)], ids=["known length", "unknown length"])
def test_the_last_batch_is_known_from_its_start_to_its_end(data):
    """is_last_batch is True in the last batch's hooks, at its start as at its end, and in no other's."""
    seen = []

    class Asks(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            seen.append(trainer.is_last_batch)

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            seen.append(trainer.is_last_batch)

    quiet_trainer(callbacks=[Asks()], max_epochs=2).fit(Net(), data)
    assert seen == [False, False, False, False, True, True] * 2


def test_the_strategy_can_be_asked_as_people_ask_it():
    """trainer.strategy has barrier(), broadcast, reduce and the rest with the arguments that moved code gives."""

    class Asks(Callback):
        def on_train_start(self, trainer, module):
            strategy = trainer.strategy
            strategy.barrier()
            strategy.barrier("data is there")
            self.told = [strategy.broadcast([1], src=0), strategy.reduce(3.0).item(), strategy.root_device.type]
            self.decided = [strategy.reduce_boolean_decision(True), strategy.reduce_boolean_decision(False, all=False)]
            self.ranks = [strategy.world_size, strategy.is_global_zero, strategy.global_rank]
            self.same = isinstance(strategy, Strategy)
            with pytest.raises(InvalidArgument, match="reduce_op='median' must be one of sum, mean, min, max"):
                strategy.reduce(torch.ones(1), reduce_op="median")
            with pytest.raises(InvalidArgument, match=r"broadcast\(src=1\)"):
                strategy.broadcast(1, src=1)

    asks = Asks()
    quiet_trainer(callbacks=asks).fit(Net(), loader(1))
    assert (asks.told, asks.decided) == ([[1], 3.0, "cpu"], [True, False])
    assert (asks.ranks, asks.same) == ([1, True, 0], True)
