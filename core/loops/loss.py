"""The loss in what a step returned, and what is wrong with one that cannot be differentiated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from core.errors import InterlockError, WrongType


def loss_of(outputs: Any) -> Tensor | None:
    """Return the loss in what ``training_step`` returned: the tensor itself, ``outputs["loss"]``, or None.

    Raises:
        WrongType: for anything else.
    """
    if outputs is None or isinstance(outputs, Tensor):
        return outputs
    try:
        loss = outputs["loss"]
    except (TypeError, KeyError, IndexError, AttributeError):
        raise wrong_outputs(outputs) from None
    if loss is None or isinstance(loss, Tensor):
        return loss
    raise WrongType(
        f"training_step returned a 'loss' that is {_named(loss)}, not a scalar tensor\n"
        "  hint: return the loss as it was computed, without .item() or float()"
    )


def wrong_outputs(outputs: Any) -> WrongType:
    """Return the error for outputs without a loss."""
    return WrongType(f"training_step must return a scalar tensor, a dict with 'loss', or None, not {_named(outputs)}")


def _named(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with the keys {', '.join(map(repr, value)) or '(none)'}"
    if isinstance(value, int | float):
        return f"the {type(value).__name__} {value!r}"
    return f"a value of type {type(value).__name__}"


def refuse_loss(said: str, loss: Any, parameters: Iterable[nn.Parameter], error: Exception) -> None:
    """Called when backward failed: say what is wrong with the loss, if it is the loss.

    Nothing is looked at before, for it would be looked at in every step.

    Args:
        said: how the loss came, such as ``"training_step returned"``.
        loss: what backward was given.
        parameters: of the module whose loss it is.
        error: what backward raised.

    Raises:
        InterlockError: from ``error``; none where the loss is fine and the fault is elsewhere.
    """
    if not isinstance(loss, Tensor):
        raise WrongType(f"{said} {_named(loss)}, not a scalar tensor") from error
    hint, parameters = "", list(parameters)
    if not loss.requires_grad:
        fault = "that no gradient comes from: it was detached, computed without gradients, or uses no parameter"
        hint = "\n  hint: leave out .detach(), .item() and torch.no_grad()"
        if not any(parameter.requires_grad for parameter in parameters):
            fault = "that no gradient comes from: no parameter of the module requires one"
            hint = "\n  hint: unfreeze some of them, with requires_grad_(True)"
    elif loss.numel() != 1:
        fault = f"of shape {tuple(loss.shape)}; it must be one number"
        hint = "\n  hint: reduce it, with .mean() or .sum()"
    elif loss.is_complex():
        fault = f"of {loss.dtype}; it must be a real number"
        hint = "\n  hint: return its .abs() or .real"
    elif loss.device not in {parameter.device for parameter in parameters}:
        fault = f"on {loss.device}, where the module has no parameter, and backward failed: {error}"
    else:
        return
    raise InterlockError(f"{said} a loss {fault}{hint}") from error
