"""From a request to a plan, or to the one error that says everything (torch-free, changes nothing)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from core.availability import probe, reasons_against
from core.declarations import KINDS, AcceleratorDeclaration, Declaration, Kind, StrategyDeclaration
from core.discovery import Found
from core.ease import ease
from core.errors import InterlockError, InvalidCombination, PluginUnavailable
from core.hooktable import HOOKS
from core.plan import Chosen, HookRow, Launch, Plan
from core.rules import Combination, Party, Violation, party_of, violations
from core.spellings import AUTO, fold
from core.suggest import suggest
from core.vocabulary import MODULE_BRINGS

if TYPE_CHECKING:
    from core.registry import Registry
    from core.request import Request


def resolve(registry: Registry, request: Request) -> Plan:
    """See :meth:`core.registry.Registry.resolve`."""
    try:
        return _attempt(registry, request)
    except _RefusalError as refusal:
        # what is suggested has passed every check with this very request
        near: list[Combination] = []
        if refusal.names is not None:
            near = suggest(registry, refusal.names, request.party(1), partial(_with_names_works, registry, request))
        settings = [] if near else ease(request, partial(_works, registry))
        raise refusal.kind(refusal.subject, refusal.reasons, near, settings) from None


class _RefusalError(Exception):
    """Carries what an error is made of, before anyone has looked for suggestions; never leaves this module."""

    def __init__(
        self,
        kind: type[InvalidCombination] | type[PluginUnavailable],
        subject: str,
        reasons: Sequence[Any],
        names: Combination | None,
    ) -> None:
        self.kind, self.subject, self.reasons, self.names = kind, subject, reasons, names
        super().__init__(subject)


def _with_names_works(registry: Registry, request: Request, combination: Combination) -> bool:
    return _works(registry, replace(request, **combination._asdict(), options={}))


def _works(registry: Registry, request: Request) -> bool:
    try:
        _attempt(registry, request)
    except (_RefusalError, InterlockError):
        return False
    return True


def _attempt(registry: Registry, request: Request) -> Plan:
    accelerator = _accelerator(registry, request)
    precision = _precision(registry, request)
    fixed = None if fold(request.strategy) == AUTO else registry.find("strategy", request.strategy)
    count, devices_reason = _count_devices(request, accelerator, fixed)
    party = request.party(count)
    strategy = _asked(fixed) if fixed else _auto_strategy(registry, party, accelerator, precision)
    accelerator, precision, strategy = trio = tuple(
        replace(chosen, options=_with_defaults(chosen.declaration, request.options.get(chosen.declaration.kind, ())))
        for chosen in (accelerator, precision, strategy)
    )
    declaration = strategy.declaration
    assert isinstance(declaration, StrategyDeclaration)
    party = request.party(count, declaration.ranks_per_node(count))
    world_size = request.num_nodes * declaration.ranks_per_node(count)
    _refuse_invalid(registry, request, trio, party, world_size)
    _refuse_unavailable(registry, request, trio, count)
    return Plan(
        accelerator,
        precision,
        strategy,
        count,
        request.devices.indices,
        devices_reason,
        request.num_nodes,
        world_size,
        _launch(request, declaration, world_size),
        party,
        tuple(_hook_rows(trio)),
    )


def _chosen(found: Found, reason: str) -> Chosen:
    assert found.declaration is not None, "only sound plugins are chosen"
    return Chosen(found.declaration, found.distribution, found.version, reason)


def _asked(found: Found) -> Chosen:
    return _chosen(found, "asked for")


def _by_preference(registry: Registry, kind: Kind) -> list[Declaration]:
    """Return what "auto" may take. A name that two plugins claim stays in: taking it then raises, naming both."""
    wanted = [declaration for _, declaration in registry.sound(kind) if declaration.preference > 0]
    return sorted(wanted, key=lambda d: (-d.preference, d.name))


def _accelerator(registry: Registry, request: Request) -> Chosen:
    if fold(request.accelerator) != AUTO:
        return _asked(registry.find("accelerator", request.accelerator))
    passed_over: list[str] = []
    for declaration in _by_preference(registry, "accelerator"):
        reasons = reasons_against(declaration)
        if not reasons:
            over = f"; passed over {', '.join(passed_over)}" if passed_over else ""
            return _chosen(registry.find("accelerator", declaration.name), f"auto: the best that is here{over}")
        passed_over.append(f"{declaration.name} ({reasons[0]})")
    raise PluginUnavailable("accelerator 'auto'", passed_over or ["no accelerator plugin is installed"])


def _precision(registry: Registry, request: Request) -> Chosen:
    if fold(request.precision) != AUTO:
        return _asked(registry.find("precision", request.precision))
    preferred = _by_preference(registry, "precision")
    if not preferred:
        raise PluginUnavailable("precision 'auto'", ["no precision plugin is installed"])
    return _chosen(registry.find("precision", preferred[0].name), "auto: the default")


def _auto_strategy(registry: Registry, party: Party, accelerator: Chosen, precision: Chosen) -> Chosen:
    """Take the most preferred strategy that is valid and can run here, else let the first speak for the failure."""
    preferred = _by_preference(registry, "strategy")
    if not preferred:
        raise PluginUnavailable("strategy 'auto'", ["no strategy plugin is installed"])
    others = [party_of(accelerator.declaration), party_of(precision.declaration), party]

    def broken(declaration: Declaration) -> int:
        return len(violations([*others, party_of(declaration)], MODULE_BRINGS))

    fitting = (d for d in preferred if not broken(d) and not reasons_against(d))
    # none fits: the one with the fewest broken rules explains best what stands in the way
    taken = next(fitting, None) or min(preferred, key=broken)
    return _chosen(registry.find("strategy", taken.name), "auto: the most preferred that is valid here")


def _count_devices(request: Request, accelerator: Chosen, fixed: Found | None) -> tuple[int, str]:
    """Turn the request for devices into a number per node, and say where the number comes from."""
    devices, launched = request.devices, request.environment.ranks
    if devices.indices is not None:
        return len(devices.indices), "asked for"
    if devices.count is not None and devices.count > 0:
        return devices.count, "asked for"
    declaration = accelerator.declaration
    assert isinstance(declaration, AcceleratorDeclaration)
    if devices.count == -1:
        here = probe(declaration).count
        if here is None:
            reason = f"devices=-1 means all devices, but {accelerator.name} has no fixed number; give a count"
            both = Violation("the request", "disagrees", "devices", reason, (f"accelerator {accelerator.name!r}",))
            raise _RefusalError(InvalidCombination, _subject(request, accelerator.name), [both], None)
        return max(here, 1), f"all that {accelerator.name} has here"
    if fixed and fixed.declaration and "devices.many" not in fixed.declaration.provided:
        return 1, f"auto: {fixed.name} uses one"
    per_node = fixed and isinstance(fixed.declaration, StrategyDeclaration) and fixed.declaration.ranks == "node"
    if launched and request.environment.external and not per_node:
        return launched.local_world_size, "auto: one per process that the launcher started here"
    here = probe(declaration).count
    return (1, f"auto: {accelerator.name} has no fixed number") if here is None else (max(here, 1), "auto: all here")


def _with_defaults(declaration: Declaration, given: tuple[tuple[str, object], ...]) -> tuple[tuple[str, object], ...]:
    values = {option.name: option.default for option in declaration.options} | dict(given)
    return tuple(values.items())


def _subject(request: Request, accelerator: str, precision: str = "", strategy: str = "") -> str:
    """Write the request as arguments, with what "auto" chose marked as such."""
    names = Combination(accelerator, precision or request.precision, strategy or request.strategy)
    given = (request.accelerator, request.precision, request.strategy)
    parts = [
        f"{kind}={name!r}{' (auto)' if fold(asked) == AUTO != name else ''}"
        for kind, name, asked in zip(KINDS, names, given, strict=True)
    ]
    nodes = [f"num_nodes={request.num_nodes}"] if request.num_nodes > 1 else []
    return ", ".join([*parts, f"devices={request.devices}", *nodes])


def _names(registry: Registry, trio: tuple[Chosen, ...]) -> Combination:
    """Return the names that choose these three plugins and no others."""
    found = (registry.find(c.declaration.kind, f"{c.distribution}:{c.name}") for c in trio)
    return Combination(*map(registry.reference, found))


def _refuse_invalid(
    registry: Registry, request: Request, trio: tuple[Chosen, ...], party: Party, world_size: int
) -> None:
    broken = violations([*(party_of(chosen.declaration) for chosen in trio), party], MODULE_BRINGS)
    broken += _launcher_disagrees(request, trio[2].declaration, world_size)
    if broken:
        names = _names(registry, trio)
        raise _RefusalError(InvalidCombination, _subject(request, *names), broken, names)


def _launcher_disagrees(request: Request, strategy: Declaration, world_size: int) -> list[Violation]:
    environment = request.environment
    if environment.ranks is None or environment.ranks.world_size == world_size:
        return []
    if environment.name == "interlock" and world_size == 1:
        return []  # a script may train on many ranks and then look at the result on one
    assert isinstance(strategy, StrategyDeclaration)
    asked = {
        "device": f"devices={request.devices} x num_nodes={request.num_nodes} makes",
        "node": f"num_nodes={request.num_nodes} with one process on each, as {strategy.name} has it, makes",
        "run": f"{strategy.name} has",
    }[strategy.ranks]
    processes = f"{world_size} process{'es' if world_size != 1 else ''}"
    reason = f"{environment.reason}, but {asked} {processes}; make the two numbers equal"
    return [Violation("the launcher", "disagrees", "WORLD_SIZE", reason, ("the request",))]


def _refuse_unavailable(registry: Registry, request: Request, trio: tuple[Chosen, ...], count: int) -> None:
    reasons = [
        f"{chosen.declaration.kind} {chosen.name!r}: {reason}"
        for chosen in trio
        for reason in reasons_against(chosen.declaration)
    ]
    accelerator = trio[0].declaration
    assert isinstance(accelerator, AcceleratorDeclaration)
    here = probe(accelerator).count
    if not reasons and here is not None:
        indices = request.devices.indices
        beyond = [index for index in indices or () if index >= here]
        if beyond:
            reasons.append(f"device index {beyond[0]} asked for, {accelerator.name} has 0 to {here - 1} here")
        elif count > here:
            reasons.append(f"{count} devices asked for, {accelerator.name} has {here} here")
    if reasons:
        names = _names(registry, trio)
        raise _RefusalError(PluginUnavailable, _subject(request, *names), reasons, names)


def _launch(request: Request, strategy: StrategyDeclaration, world_size: int) -> Launch:
    environment = request.environment
    if environment.external and "launch.external" in strategy.provided:
        return Launch("external", environment.reason)
    if world_size == 1:
        return Launch("here", f"one process is enough; {environment.reason}")
    if environment.name == "interlock":
        return Launch("subprocess", environment.reason)
    ways = [token.removeprefix("launch.") for token in strategy.provides if token.startswith("launch.")]
    own = [way for way in ways if way != "external"]
    return Launch(own[0], f"{strategy.name} starts its own; {environment.reason}") if own else Launch("here", "")


def _hook_rows(trio: tuple[Chosen, ...]) -> Iterator[HookRow]:
    """Read off the declarations who owns and who wraps each hook; the binding later holds the code to it."""
    by_kind = {chosen.declaration.kind: chosen for chosen in trio}
    for hook, rule in HOOKS.items():
        wrappers = [by_kind[kind].name for kind in rule.wrappers if hook in by_kind[kind].declaration.wraps]
        yield HookRow(hook, by_kind[rule.owner].name, tuple(wrappers))
