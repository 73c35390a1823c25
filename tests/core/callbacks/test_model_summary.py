"""What the model summary shows, and that looking leaves no trace."""

import io

import pytest
import torch
from rich.console import Console
from support.nets import loader, quiet_trainer
from support.scored import Scored
from torch import nn

from core import Trainer
from core.callbacks import ModelSummary
from core.callbacks.summary import count, size, summarize


class Net(Scored):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 300), nn.BatchNorm1d(300), nn.Dropout(0.5), nn.Linear(300, 1))
        self.head = nn.Linear(1, 2)
        self.head.bias.requires_grad_(False)
        self.head.eval()
        self.example_input_array = torch.zeros(7, 4)

    def forward(self, batch):
        return self.head(self.layer(batch))


def test_table_of_the_default_summary():
    """A fit shows name, type, parameters, what is trained, sizes and totals, without being asked."""
    file = io.StringIO()
    net = Net()
    trainer = quiet_trainer(callbacks=[ModelSummary(console=Console(file=file, width=100))])
    trainer.fit(net, loader())
    lines = [" ".join(line.split()) for line in file.getvalue().splitlines()]
    assert lines == [
        "name type params trained in out",
        "layer Sequential 2.4 K yes [7, 4] [7, 1]",
        "head Linear 4 2 of them [7, 1] [7, 2]",
        "2.4 K parameters: 2.4 K trained, 2 frozen; 9.62 kB",
        "1 parts are in eval mode",
    ]


@pytest.mark.parametrize(
    ("depth", "parts"),
    [
        (0, []),
        (1, ["layer", "head"]),
        (-1, ["layer", "layer.0", "layer.1", "layer.2", "layer.3", "head"]),
    ],
)
def test_depth(depth, parts):
    """max_depth says how deep the table goes; the totals are always those of the whole."""
    summary = summarize(Net(), depth)
    assert [part.name for part in summary.parts] == parts
    assert (summary.total, summary.trainable, summary.frozen) == (2405, 2403, 2)


def test_looking_leaves_no_trace():
    """Neither buffers nor modes nor random numbers show that an example ran through the module."""
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    modes, random = [part.training for part in net.modules()], torch.get_rng_state()
    summarize(net, -1)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [part.training for part in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(part._forward_hooks for part in net.modules())


def test_shared_and_lazy_parameters():
    """Shared parameters count once, lazy ones are named and not counted."""
    net = nn.ModuleDict({"a": nn.Linear(3, 3), "lazy": nn.LazyLinear(2)})
    net["b"] = net["a"]
    summary = summarize(net)
    assert (summary.total, summary.uninitialized) == (12, 2)
    assert "2 lazy parameters, not counted: their size is not known yet" in summary.lines()


def test_forward_that_fails_is_told():
    """An example that the forward cannot take costs the sizes and nothing else."""
    net = Net()
    net.example_input_array = torch.zeros(1, 5)
    summary = summarize(net)
    assert summary.sizes_from.startswith("no sizes: forward of example_input_array failed: RuntimeError: ")
    assert all(part.in_size == "" for part in summary.parts)


@pytest.mark.parametrize(
    ("example", "sizes"),
    [
        ((torch.zeros(2, 4), torch.zeros(2, 4)), ("[2, 4]", "[2, 1]")),
        ({"first": torch.zeros(3, 4), "second": torch.zeros(3, 4)}, ("[3, 4]", "[3, 1]")),
    ],
    ids=["tuple", "dict"],
)
def test_examples_of_several_inputs(example, sizes):
    """A tuple holds positional arguments, a dict keywords."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, first, second):
            return self.layer(first) + self.layer(second)

    (part,) = summarize(Two(), example=example).parts
    assert (part.in_size, part.out_size) == sizes


def test_half_precision_example():
    """The example is brought to the number format of the weights, as a batch is."""
    file = io.StringIO()
    summary = ModelSummary(console=Console(file=file, width=100))
    quiet_trainer(callbacks=[summary], precision="bf16-true").fit(Net(), loader())
    assert "[7, 4]" in file.getvalue()


def test_numbers_are_short():
    """Numbers of parameters and bytes have three digits and a unit."""
    assert [count(n) for n in (0, 999, 1000, 12_345, 999_600, 3_456_789, 7_000_000_000)] == [
        *("0", "999", "1 K", "12.3 K", "1000 K", "3.46 M", "7 B"),
    ]
    assert [size(n) for n in (12, 1500, 2_000_000)] == ["12 bytes", "1.5 kB", "2 MB"]


def test_who_adds_it():
    """The Trainer adds one unless it is told not to, or has one."""
    kinds = [type(callback) for callback in Trainer(accelerator="cpu", logger=False).callbacks]
    assert kinds.count(ModelSummary) == 1
    assert not any(isinstance(c, ModelSummary) for c in quiet_trainer(enable_model_summary=False).callbacks)
    own = ModelSummary(max_depth=3)
    callbacks = Trainer(accelerator="cpu", logger=False, callbacks=own).callbacks
    assert [c for c in callbacks if isinstance(c, ModelSummary)] == [own]
