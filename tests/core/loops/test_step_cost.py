"""What a training step does not do: calls, waits and memory that only features need that are off."""

import gc
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from support.nets import Net, loader, quiet_trainer
from torch.utils._python_dispatch import TorchDispatchMode

import core
from core import Callback, ModelCheckpoint
from core.callbacks import ProgressBar

FIRST, STEPS = 4, 20
CORE, PLUGGY = str(Path(core.__file__).parent), "pluggy"


class Logging(Net):
    """Logs so many values in each step."""

    def __init__(self, values=0):
        super().__init__()
        self.values = [f"value_{number}" for number in range(values)]

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch / 100).pow(2).mean()
        for name in self.values:
            self.log(name, loss)
        return loss


class Fetches(TorchDispatchMode):
    """Counts how often a tensor's value is fetched to become a Python number."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*arguments, **(keywords or {}))


class Watch(Callback):
    """Counts the Python calls of ``STEPS`` steps by file, and the fetches in them."""

    def __init__(self):
        self.calls, self.fetches = Counter(), Fetches()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx == FIRST:
            self.fetches.__enter__()
            sys.setprofile(self.count)
        elif batch_idx == FIRST + STEPS:
            sys.setprofile(None)
            self.fetches.__exit__(None, None, None)

    def count(self, frame, event, argument):
        if event == "call":
            self.calls[frame.f_code.co_filename] += 1

    def calls_in(self, part):
        return sum(count for path, count in self.calls.items() if part in path)


def watched(values=0, callbacks=(), **settings):
    watch = Watch()
    trainer = quiet_trainer(callbacks=[*callbacks, watch], **settings)
    module = Logging(values)
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), 1e-9)
    try:
        trainer.fit(module, loader(FIRST + STEPS + 4))
    finally:
        sys.setprofile(None)
    return watch


def test_a_logged_value_costs_one_call():
    """A hundred values that are wanted per step are a hundred calls of log, and not one more call of ours."""
    more = watched(100).calls_in(CORE) - watched(0).calls_in(CORE)
    assert more == 100 * STEPS


@pytest.mark.parametrize("values", [1, 100])
def test_steps_read_no_value(values):
    """Between two looks at the values no tensor becomes a number."""
    assert watched(values, log_every_n_steps=1000).fetches.count == 0


def test_steps_leave_nothing_behind():
    """A hundred steps that log a hundred values each leave fewer objects than there were steps."""

    class Blocks(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx in (10, 110):
                gc.collect()
                blocks.append(sys.getallocatedblocks())

    blocks = []
    trainer = quiet_trainer(callbacks=[Blocks()], log_every_n_steps=1000)
    trainer.fit(Logging(100), loader(120))
    assert blocks[1] - blocks[0] < 100


def test_a_bar_and_checkpoints_read_no_value_in_a_step(tmp_path):
    """A progress bar that is not due and a checkpoint callback fetch nothing in a step."""
    callbacks = [ProgressBar(refresh_every=1000.0), ModelCheckpoint(tmp_path)]
    watch = watched(10, callbacks, enable_checkpointing=True, log_every_n_steps=1000)
    assert watch.fetches.count == 0


@pytest.mark.parametrize("settings", [{}, {"accumulate_grad_batches": 4}, {"precision": "16-mixed"}], ids=str)
def test_no_step_goes_through_pluggy(settings):
    """Plugins are found and ordered by pluggy before the first step; steps call them directly, wrapped ones too."""
    assert watched(**settings).calls_in(PLUGGY) == 0


def test_loss_scaling_reads_one_value_a_step():
    """Whether scaled gradients are finite is the one thing that a step has to wait for."""
    assert watched(100, precision="16-mixed", log_every_n_steps=1000).fetches.count == STEPS


def test_callbacks_cost_one_call_each():
    """Five callbacks that listen to the start of a batch are five calls more, and no other."""

    class Listening(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            pass

    five, none = watched(callbacks=[Listening() for _ in range(5)]), watched()
    assert five.calls_in("") - none.calls_in("") == 5 * STEPS
