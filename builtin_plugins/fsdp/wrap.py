"""Decide which parts of a module are gathered one at a time."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from torch import nn

from core.errors import InvalidArgument

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
"""Modules that are never called: nothing would gather their parameters."""
USES_PARTS = (nn.MultiheadAttention,)
"""Modules that read parameters of their parts without calling those."""


def parts_to_gather(module: nn.Module, names: Sequence[str], min_params: int) -> list[nn.Module]:
    """Return the parts of ``module``, inner ones first, that get a group of their own.

    A part whose parameters are also used by other parts stays out where size chooses. The module itself is not among
    them: its step is called rather than its ``forward``, so its own parameters belong to the run's outermost group.

    Raises:
        InvalidArgument: for a name that no part has, or a part that shares parameters with others.
    """
    by_name = [part for part in module.modules() if part is not module and type(part).__name__ in names]
    _refuse_unknown(module, names, by_name)
    chosen = {id(part) for part in by_name}
    if min_params > 0:
        _choose_by_size(module, min_params, _Sharing(module), chosen, root=module)
    sharing = _Sharing(module)
    for part in by_name:
        if not sharing.is_alone(part):
            raise InvalidArgument(
                f"wrap names {type(part).__name__}, which shares parameters with other parts of the module; "
                "name a part that holds all users of those parameters"
            )
    # in reversed order of a walk from the outside in, inner parts come before those that hold them
    return [part for part in reversed(list(module.modules())) if id(part) in chosen]


class _Sharing:
    """Knows how often each parameter occurs in the module."""

    def __init__(self, module: nn.Module) -> None:
        self._uses = _uses(module)

    def is_alone(self, part: nn.Module) -> bool:
        """Tell whether the parameters of ``part`` occur nowhere else."""
        return all(count == self._uses[parameter] for parameter, count in _uses(part).items())


def _uses(module: nn.Module) -> dict[nn.Parameter, int]:
    uses: dict[nn.Parameter, int] = {}
    for part in module.modules():
        for parameter in part._parameters.values():
            if parameter is not None:
                uses[parameter] = uses.get(parameter, 0) + 1
    return uses


def _choose_by_size(part: nn.Module, least: int, sharing: _Sharing, chosen: set[int], root: nn.Module) -> int:
    """Choose from the inside out; return how many parameters of ``part`` are in no group yet."""
    if id(part) in chosen:
        return 0
    own = sum(parameter.numel() for parameter in part.parameters(recurse=False))
    children = () if isinstance(part, USES_PARTS) else part.children()
    left = own + sum(_choose_by_size(child, least, sharing, chosen, root) for child in children)
    if isinstance(part, USES_PARTS):
        left = sum(parameter.numel() for parameter in part.parameters())
    if left >= least and part is not root and not isinstance(part, CONTAINERS) and sharing.is_alone(part):
        chosen.add(id(part))
        return 0
    return left


def _refuse_unknown(module: nn.Module, names: Sequence[str], found: Sequence[nn.Module]) -> None:
    known = sorted({type(part).__name__ for part in module.modules() if part is not module})
    for name in names:
        if name not in {type(part).__name__ for part in found}:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidArgument(
                f"wrap names {name!r}, but no part of {type(module).__name__} has this class{hint}\n"
                f"  its parts: {', '.join(known) or 'none'}"
            )
