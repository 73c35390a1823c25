"""Parameters that a loss does not use: torch tells a step later and by number, here it is at once and by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch.nn.parallel import DistributedDataParallel

from core.errors import InterlockError

SHOWN = 8
"""How many names a message holds."""


def parameter_names(wrapped: DistributedDataParallel) -> list[str]:
    """Return the names of the parameters in the order in which torch numbers them, which it does once."""
    names = {id(parameter): name for name, parameter in wrapped.module.named_parameters()}
    parameters, _ = wrapped._build_params_for_reducer()  # type: ignore[no-untyped-call]
    # the first part of a name is the wrapper around the user's module
    return [names[id(parameter)].partition(".")[2] for parameter in parameters]


def refuse_unused(wrapped: DistributedDataParallel, names: Sequence[str], strategy: type) -> None:
    """Call it after each backward that exchanges gradients; it costs about a microsecond.

    Args:
        wrapped: the model.
        names: of its parameters, taken before any of them was frozen.
        strategy: has the option that would allow them.

    Raises:
        InterlockError: with the parameters that got no gradient, and the option.
    """
    try:
        wrapped._check_reducer_finalized()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        unused = _unused(names, str(error))
        more = f" and {len(unused) - SHOWN} more" if len(unused) > SHOWN else ""
        option = f"{strategy.__name__}(find_unused_parameters=True)"
        raise InterlockError(
            f"the loss does not use {', '.join(unused[:SHOWN])}{more}, and the other ranks wait for their gradients\n"
            f"  hint: strategy={option} looks in each step for parameters without a gradient"
        ) from error


def _unused(names: Sequence[str], message: str) -> list[str]:
    """Return the names of the parameters whose numbers torch's message holds."""
    told = re.search(r"did not receive grad for rank \d+: ([\d ]+)", message)
    return [names[int(index)] for index in told[1].split()] if told else ["some parameters"]
