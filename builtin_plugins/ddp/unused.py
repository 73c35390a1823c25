"""Parameters that a loss does not use: torch tells a step later and by number, here it is at once and by name."""

from __future__ import annotations

import re

from torch.nn.parallel import DistributedDataParallel

from core.errors import InterlockError

SHOWN = 8
"""How many names a message holds."""


def refuse_unused(wrapped: DistributedDataParallel, strategy: type) -> None:
    """Call it after each backward that exchanges gradients; it costs about a microsecond.

    Raises:
        InterlockError: with the parameters that got no gradient, and the option of ``strategy`` that would allow them.
    """
    try:
        wrapped._check_reducer_finalized()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        names = _unused(wrapped, str(error))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        option = f"{strategy.__name__}(find_unused_parameters=True)"
        raise InterlockError(
            f"the loss does not use {', '.join(names[:SHOWN])}{more}, and the other ranks wait for their gradients\n"
            f"  hint: strategy={option} looks in each step for parameters without a gradient"
        ) from error


def _unused(wrapped: DistributedDataParallel, message: str) -> list[str]:
    """Return the names of the parameters whose numbers torch's message holds."""
    told = re.search(r"did not receive grad for rank \d+: ([\d ]+)", message)
    if told is None:
        return ["some parameters"]
    names = {id(parameter): name for name, parameter in wrapped.module.named_parameters()}
    parameters, _ = wrapped._build_params_for_reducer()  # type: ignore[no-untyped-call]
    # the first part of a name is the wrapper around the user's module
    return [names[id(parameters[int(index)])].partition(".")[2] for index in told[1].split()]
