"""A loss that cannot be differentiated is refused by what training_step returned, not by what torch met."""

import pytest
import torch
from support.nets import Net, loader, quiet_trainer

from core.errors import InterlockError, WrongType

FAULTS = {
    "a float": (lambda loss: loss.item(), "must return a scalar tensor.* not the float"),
    "another dict": (lambda loss: {"los": loss}, "not a dict with the keys 'los'"),
    "a float in a dict": (lambda loss: {"loss": loss.item()}, "training_step returned a 'loss' that is the float"),
    "detached": (lambda loss: loss.detach(), r"training_step returned a loss that no gradient comes from.*\.detach"),
    "in a dict, detached": (lambda loss: {"loss": loss.detach()}, "a loss that no gradient comes from"),
    "a vector": (lambda loss: loss.expand(3), r"a loss of shape \(3,\); it must be one number\n  hint: reduce it"),
    "complex": (lambda loss: loss.to(torch.complex64), "a loss of torch.complex64"),
    "elsewhere": (lambda loss: loss.to("meta"), "a loss on meta, where the module has no parameter"),
}


def net_returning(change):
    """Return a module whose step returns what ``change`` makes of its loss."""

    class Wrong(Net):
        def training_step(self, batch, batch_idx):
            return change(super().training_step(batch, batch_idx))

    return Wrong()


@pytest.mark.parametrize("settings", [{}, {"precision": "16-mixed"}, {"strategy": "dp", "devices": 2}], ids=str)
@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "elsewhere"])
def test_a_loss_that_cannot_be_differentiated_is_named(fault, settings):
    """Whatever the step returned in place of a loss, one error of ours says what it was, with plugins around it too."""
    change, message = FAULTS[fault]
    with pytest.raises(InterlockError, match=f"(?s){message}"):
        quiet_trainer(**settings).fit(net_returning(change), loader())


def test_a_loss_on_another_device_is_named_when_backward_fails():
    """A loss in a memory that backward cannot come from is told by its device; the cause stays."""
    change, message = FAULTS["elsewhere"]
    with pytest.raises(InterlockError, match=message) as caught:
        quiet_trainer().fit(net_returning(change), loader())
    assert isinstance(caught.value.__cause__, NotImplementedError)


def test_a_frozen_module_is_named():
    """Where no parameter requires a gradient, the error says that and not that the loss was detached."""
    net = Net()
    net.requires_grad_(False)
    with pytest.raises(InterlockError, match="no parameter of the module requires one\n  hint: unfreeze"):
        quiet_trainer().fit(net, loader())


def test_a_loss_by_hand_is_named():
    """manual_backward says the same of what it was given."""

    class ByHand(Net):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            self.manual_backward(self.given(self.layer(batch).mean()))

    net = ByHand()
    for net.given, error, message in (
        (torch.Tensor.detach, InterlockError, "manual_backward was given a loss that no gradient"),
        (torch.Tensor.item, WrongType, "manual_backward was given the float"),
    ):
        with pytest.raises(error, match=message):
            quiet_trainer().fit(net, loader())


def test_other_faults_in_backward_stay_what_they_are():
    """A graph that is used twice is no fault of the loss: torch's own error comes through."""

    class Twice(Net):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            loss.backward()
            return loss

    with pytest.raises(RuntimeError, match="second time") as caught:
        quiet_trainer().fit(Twice(), loader())
    assert not isinstance(caught.value, InterlockError)
