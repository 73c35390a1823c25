"""Settings of torch that a run makes."""

from __future__ import annotations

import pytest
import torch
from support.reference import make_trainer
from torch import nn

ASKED = {"deterministic": True, "benchmark": True, "detect_anomaly": True}


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


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize(
    ("asked", "inside"),
    [
        (ASKED, (True, False, True, True, torch.float32)),
        ({"deterministic": "warn"}, (True, True, False, False, torch.float32)),
        ({"precision": "64-true"}, (False, False, False, False, torch.float64)),
        ({}, (False, False, False, False, torch.float32)),
    ],
    ids=str,
)
@pytest.mark.parametrize("fails", [False, True])
def test_put_back(asked, inside, fails):
    """What a run asks of torch holds inside its steps, and is put back when it ends or fails."""
    before, module = settings(), Looks(fails)
    trainer = make_trainer(max_epochs=1, **asked)
    if fails:
        with pytest.raises(ZeroDivisionError):
            trainer.fit(module, [torch.ones(1, 1)])
    else:
        trainer.fit(module, [torch.ones(1, 1)])
    assert module.seen == [inside]
    assert settings() == before
