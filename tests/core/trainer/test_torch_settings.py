"""Settings of torch that a run makes."""

from __future__ import annotations

import pytest
import torch
from support.reference import make_trainer
from torch import nn

from core.errors import InvalidCombination

ASKED = {"deterministic": True, "benchmark": False, "detect_anomaly": True}


class Looks(nn.Linear):
    """Looks at the settings in its step, and may fail there."""

    def __init__(self, fails):
        super().__init__(1, 1)
        self.fails, self.seen = fails, []

    def training_step(self, batch, batch_idx):
        self.seen.append(settings())
        if self.fails:
            raise ZeroDivisionError
        return self(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def settings():
    """Return the settings as they are."""
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
        torch.is_anomaly_enabled(),
        torch.get_default_dtype(),
    )


def test_cudnn_that_nothing_runs_on_is_refused():
    """benchmark=True is refused where the accelerator does not run on cuDNN, with the setting that mends it."""
    with pytest.raises(InvalidCombination, match="benchmark=True lets cuDNN try out its kernels") as refused:
        make_trainer(benchmark=True)
    assert "benchmark=False" in refused.value.settings


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize(
    ("asked", "inside"),
    [
        (ASKED, (True, False, False, True, torch.float32)),
        ({"deterministic": "warn"}, (True, True, True, False, torch.float32)),
        ({"precision": "64-true"}, (False, False, True, False, torch.float64)),
        ({}, (False, False, True, False, torch.float32)),
    ],
    ids=str,
)
@pytest.mark.parametrize("fails", [False, True])
def test_put_back(monkeypatch, asked, inside, fails):
    """What a run asks of torch holds inside its steps, and is put back when it ends or fails."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)  # as the program has set it
    before, module = settings(), Looks(fails)
    trainer = make_trainer(max_epochs=1, **asked)
    if fails:
        with pytest.raises(ZeroDivisionError):
            trainer.fit(module, [torch.ones(1, 1)])
    else:
        trainer.fit(module, [torch.ones(1, 1)])
    assert module.seen == [inside]
    assert settings() == before
