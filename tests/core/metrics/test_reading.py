"""Logged values become numbers when someone looks, those of a device in one fetch."""

import pytest
import torch
from support.nets import Net, loader, quiet_trainer

from core.errors import InvalidArgument
from core.metrics.results import as_numbers


class Far(torch.Tensor):
    """A tensor that is not in host memory, as far as anyone can tell."""

    fetches = 0
    is_cpu = False

    def tolist(self):
        Far.fetches += 1
        return super().tolist()


def far(value, dtype=torch.float32):
    return torch.tensor(value, dtype=dtype).as_subclass(Far)


def test_values_of_a_device_are_fetched_together():
    """Whatever is mixed with them, values of one device and format come in one fetch, each in its place."""
    Far.fetches = 0
    values = [1, far(2.0), torch.tensor([3.0]), far([4.0]), 5.5, far(6.0, torch.float64), far(7, torch.int64)]
    assert as_numbers([("value", value) for value in values]) == [1.0, 2.0, 3.0, 4.0, 5.5, 6.0, 7.0]
    assert Far.fetches == 3


def test_a_value_that_grew_is_refused_by_its_name():
    """A name that was one number and later is a tensor of several is an error with its name and shape."""

    class Grows(Net):
        def training_step(self, batch, batch_idx):
            self.log("growing", torch.ones(1 + batch_idx))
            return super().training_step(batch, batch_idx)

    with pytest.raises(InvalidArgument, match=r"log\('growing'\) takes one number, not a tensor of shape \(3,\)"):
        quiet_trainer().fit(Grows(), loader(3))


def test_a_value_is_that_of_its_step():
    """A tensor that is logged keeps no graph, and what is shown is the last step's."""

    class Logs(Net):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            self.log("index", batch_idx)
            self.last = loss.item()
            return loss

    module, trainer = Logs(), quiet_trainer()
    trainer.fit(module, loader(3))
    assert float(trainer.callback_metrics["loss"]) == pytest.approx(module.last)
    assert float(trainer.callback_metrics["index"]) == 2.0
    assert not trainer.callback_metrics["loss"].requires_grad
