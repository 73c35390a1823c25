"""fsdp: which parts are gathered by themselves, and how a module becomes whole again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.reference import make_trainer
from torch import nn

from builtin_plugins.fsdp.strategy import FSDPStrategy
from builtin_plugins.fsdp.wrap import parts_to_gather
from core import Module
from core.errors import InterlockError, InvalidArgument


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        return self.feed(self.attention(x, x, x)[0]) + x


class Transformer(Module):
    """Two blocks, and an embedding that is the head as well."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight
        self.seen: list[set[str]] = []
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def training_step(self, batch, batch_idx):
        scores = self(batch)
        self.seen.append({str(scores.dtype), str(self.blocks[0].feed[0].weight.dtype)})
        return nn.functional.cross_entropy(scores.float().flatten(0, 1), batch.flatten())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def names_of(module: nn.Module, parts: list[nn.Module]) -> list[str]:
    """Return the names of the parts, in the order in which they came."""
    names = {part: name for name, part in module.named_modules()}
    return [names[part] for part in parts]


def test_parts_by_class_come_inner_ones_first():
    """Parts are chosen by the names of their classes, and those inside others come before them."""
    module = Transformer()
    found = names_of(module, parts_to_gather(module, ["Block", "MultiheadAttention"], 0))
    assert sorted(found) == ["blocks.0", "blocks.0.attention", "blocks.1", "blocks.1.attention"]
    assert found.index("blocks.0.attention") < found.index("blocks.0")


def test_parts_by_size():
    """Parts of the size asked for are chosen from the inside out; containers and users of others' weights are not."""
    module = Transformer()
    assert sorted(names_of(module, parts_to_gather(module, [], 250))) == [
        "blocks.0.attention",
        "blocks.0.feed",
        "blocks.1.attention",
        "blocks.1.feed",
    ]
    # the tied embedding and head are large enough, but share their weight
    small = names_of(module, parts_to_gather(module, [], 130))
    assert "embedding" not in small
    assert "head" not in small
    assert not any("out_proj" in name for name in small)
    assert parts_to_gather(module, [], 10_000) == []


def test_name_that_no_part_has_is_refused():
    """A misspelt class name is refused with the nearest that there is."""
    with pytest.raises(InvalidArgument, match="did you mean 'Block'"):
        parts_to_gather(Transformer(), ["Blok"], 0)


def test_part_that_shares_parameters_is_refused():
    """A part by name whose weight is another part's too is refused."""
    with pytest.raises(InvalidArgument, match="shares parameters"):
        parts_to_gather(Transformer(), ["Embedding"], 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"param_dtype": "bfloat"}, "not the name of a dtype"),
        ({"reduce_dtype": "nn"}, "not the name of a dtype"),
        ({"checkpoint": "half"}, "must be 'full' or 'sharded'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    """Options outside their forms are refused at once."""
    with pytest.raises(InvalidArgument, match=message):
        FSDPStrategy(**options)


def fit(module: Module, epochs: int = 1, **options: Any) -> Any:
    """Train on one rank of a group of one."""
    trainer = make_trainer(strategy=FSDPStrategy(**options), devices=1, max_epochs=epochs)
    trainer.fit(module, [torch.randint(20, (4, 5), generator=torch.Generator().manual_seed(i)) for i in range(3)])
    return trainer


def outside(module: nn.Module) -> list[tuple[type, list[str], int]]:
    """Return what can be seen of a module and its parts from outside."""
    return [
        (
            type(part),
            sorted(vars(part).keys() - {"_trainer"}),
            sum(len(v) for k, v in vars(part).items() if k.endswith("_hooks")),
        )
        for part in module.modules()
    ]


def test_module_is_as_it_was_after_the_run():
    """After a run classes, attributes and hooks are those of before, tied weights are tied, and it can be run again."""
    module = Transformer()
    module.norm.bias.requires_grad_(False)
    before = outside(module)
    weights = []
    for _ in range(2):
        trainer = fit(module, wrap="Block")
        assert outside(module) == before
        assert module.head.weight is module.embedding.weight
        assert all(type(parameter) is nn.Parameter for parameter in module.parameters())
        assert not module.norm.bias.requires_grad
        assert torch.isfinite(module(torch.zeros(1, 2, dtype=torch.long))).all()
        weights.append(module.head.weight.sum().item())
        trainer.end_run()
    assert weights[0] != weights[1]


def test_checkpoint_after_the_run_holds_everything(tmp_path):
    """Saving when the run is over, and the module whole, writes weights and optimizer state as before it was over."""
    trainer = fit(Transformer(), wrap="Block")
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    checkpoint = torch.load(tmp_path / "end.ckpt", weights_only=True)
    assert checkpoint["state_dict"]["blocks.0.feed.0.weight"].shape == (16, 8)
    (states,) = checkpoint["optimizer_states"]
    assert len(states["param_groups"][0]["params"]) == len(list(Transformer().parameters()))
    trainer.end_run()


def test_parameters_are_gathered_in_the_dtype_asked_for():
    """With param_dtype the step computes in bfloat16, while the weights stay what they are."""
    module = Transformer()
    fit(module, wrap="Block", param_dtype="bfloat16", reduce_dtype="float32").end_run()
    assert {"torch.bfloat16"} <= module.seen[0]
    assert module.head.weight.dtype is torch.float32


def test_module_left_sharded_is_refused():
    """A module that a failed run has left in parts is refused with what to do."""

    class Failing(Transformer):
        def training_step(self, batch, batch_idx):
            raise ValueError("on purpose")

    module = Failing()
    with pytest.raises(ValueError, match="on purpose"):
        fit(module)
    with pytest.raises(InterlockError, match="sharded already"):
        fit(module)
