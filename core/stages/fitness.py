"""What a stage asks of the user's module before any process starts."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence

from torch import nn

from core.errors import InterlockError, WrongType
from core.past import PAST_HOOKS, PAST_SIGNATURES, PAST_STEP_ARGUMENTS, REFUSED_HOOKS
from core.userhooks import has_run_hooks, has_step, overridden


def need_methods(module: object, names: Sequence[str], stage: str) -> None:
    """Refuse a module without what the stage calls, or written for calls that nobody makes any more.

    Raises:
        WrongType: when it is no ``nn.Module``.
        InterlockError: naming the methods that are missing, or what to write in place of those of the past.
    """
    if isinstance(module, type) and issubclass(module, nn.Module):
        raise WrongType(f"{stage} takes an nn.Module, not its class\n  hint: make one, {module.__name__}(...)")
    if not isinstance(module, nn.Module):
        raise WrongType(f"{stage} takes an nn.Module, not {type(module).__name__} {module!r}")
    name_of = type(module).__name__
    if "_modules" not in vars(module):
        raise InterlockError(f"{name_of} is not set up: its __init__ has to call super().__init__() first")
    if isinstance(vars(module)["_modules"].get("_orig_mod"), nn.Module):
        raise WrongType(
            f"{stage} takes the module itself, not what torch.compile returned\n"
            "  hint: compile what it calls, as in self.net = torch.compile(self.net)"
        )
    missing = [name for name in names if not has_step(module, name)]
    if missing:
        raise InterlockError(f"{name_of} has no {' and no '.join(missing)}, which {stage} calls")
    if has_run_hooks(module):
        _refuse_past(module, name_of)


def _refuse_past(module: nn.Module, name_of: str) -> None:
    """Refuse hooks and arguments of steps that are gone; warn of hooks that people may have left in unused."""
    past = [name for name in PAST_HOOKS if overridden(module, name) is not None]
    refused = [f"{name} is from the past; write {PAST_HOOKS[name]}" for name in past if name in REFUSED_HOOKS]
    step = overridden(module, "training_step")
    takes = inspect.signature(step).parameters if step is not None else {}
    refused += [
        f"training_step takes {name}, which is from the past; write {instead}"
        for name, instead in PAST_STEP_ARGUMENTS.items()
        if name in takes and takes[name].default is inspect.Parameter.empty
    ]
    for name, now in PAST_SIGNATURES.items():
        own = overridden(module, name)
        if own is not None and "optimizer_idx" in inspect.signature(own).parameters:
            refused.append(f"{name} takes optimizer_idx, which is from the past; write {now}")
    if refused:
        raise InterlockError("\n".join([f"{name_of} is written for an older Trainer", *(f"  - {r}" for r in refused)]))
    for name in set(past) - REFUSED_HOOKS:
        warnings.warn(f"{name_of}.{name} is called by nobody; write {PAST_HOOKS[name]}", UserWarning, stacklevel=2)
