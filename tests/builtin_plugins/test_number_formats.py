"""In which number formats each precision computes, in every stage, and clipping where there is little to clip."""

from __future__ import annotations

import pytest
import torch
from support.reference import Net, dataset, furthest, make_trainer
from torch import nn
from torch.utils.data import DataLoader

FORMATS = {
    "32-true": (torch.float32, torch.float32),
    "64-true": (torch.float64, torch.float64),
    "16-true": (torch.float16, torch.float16),
    "bf16-true": (torch.bfloat16, torch.bfloat16),
    "16-mixed": (torch.float32, torch.float16),
    "bf16-mixed": (torch.float32, torch.bfloat16),
}
"""Of weights, and of what a layer computes."""


class Looks(Net):
    """Notes for each kind of step the formats of the weights and of what a layer makes of the batch."""

    def __init__(self) -> None:
        super().__init__("sgd")
        self.seen: dict[str, tuple[torch.dtype, torch.dtype]] = {}

    def look(self, stage, batch):
        weight = self.first[0].weight
        self.seen[stage] = (weight.dtype, nn.functional.linear(batch[0], weight).dtype)

    def training_step(self, batch, batch_idx):
        self.look("train", batch)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        self.look("validate", batch)

    def test_step(self, batch, batch_idx):
        self.look("test", batch)

    def predict_step(self, batch, batch_idx):
        self.look("predict", batch)


@pytest.mark.parametrize("precision", FORMATS)
def test_every_stage_computes_in_the_format(precision):
    """Training, validation, testing and prediction compute in the format that the precision names."""
    module, data = Looks(), DataLoader(dataset(2), batch_size=8)
    trainer = make_trainer(precision=precision, max_epochs=1)
    trainer.fit(module, data, data)
    trainer.test(module, data, verbose=False)
    trainer.predict(module, data)
    assert module.seen == dict.fromkeys(("train", "validate", "test", "predict"), FORMATS[precision])
    assert trainer.plan.precision.name == precision
    assert module.first[0].weight.dtype is FORMATS[precision][0]


class Idle(Net):
    """Has a layer that no loss uses, in an optimizer of its own or beside the others."""

    def __init__(self, apart: bool) -> None:
        super().__init__()
        self.idle, self.apart = nn.Linear(2, 2), apart

    def configure_optimizers(self):
        if not self.apart:
            return torch.optim.SGD(self.parameters(), lr=0.05)
        return [torch.optim.SGD(part.parameters(), lr=0.05) for part in (self.first, self.second, self.idle)]


@pytest.mark.parametrize("strategy", ["single_device", "ddp_sharded"])
@pytest.mark.parametrize("algorithm", ["norm", "value"])
@pytest.mark.parametrize("apart", [False, True])
def test_clipping_without_gradients(strategy, algorithm, apart):
    """Parameters without gradients do not disturb clipping, not even an optimizer that has no others."""
    module = Idle(apart)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trainer = make_trainer(
        strategy=strategy, devices=1, max_epochs=1, gradient_clip_val=1e-3, gradient_clip_algorithm=algorithm
    )
    trainer.fit(module, DataLoader(dataset(3), batch_size=8))
    trainer.end_run()
    moved = {name for name, value in module.state_dict().items() if not value.equal(before[name])}
    assert moved == {name for name in before if not name.startswith("idle")}


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_clipping_by_zero_is_none(precision):
    """gradient_clip_val=0 is no clipping with sharded gradients too: it does not make the gradients zero."""
    trained = []
    for clip in (0, None):
        module = Net("sgd")
        trainer = make_trainer(
            strategy="ddp_sharded", devices=1, precision=precision, max_epochs=1, gradient_clip_val=clip
        )
        trainer.fit(module, DataLoader(dataset(3), batch_size=8))
        trainer.end_run()
        trained.append({name: value.clone() for name, value in module.state_dict().items()})
    assert furthest(*trained) == 0
    assert furthest(trained[0], Net("sgd").state_dict()) > 1e-3
