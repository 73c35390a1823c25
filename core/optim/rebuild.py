"""Make an optimizer again, of the same class and settings, inside another."""

from __future__ import annotations

import inspect
from typing import Any

from torch.optim import Optimizer


def constructor_settings(optimizer: Optimizer) -> dict[str, Any]:
    """Return the keywords that its class has to be called with for an optimizer with the same settings.

    Some optimizers keep defaults that their constructor does not take; those are left out.
    """
    accepted = inspect.signature(type(optimizer)).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted.values())
    return {key: value for key, value in optimizer.defaults.items() if takes_any or key in accepted}
