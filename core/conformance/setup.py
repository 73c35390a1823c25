"""What one session of the kit checks: the plugins that were named, the plan they make, and the programs to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from core.availability import probe
from core.conformance.cases import Job, Options, Program, read_value
from core.declarations import KINDS, AcceleratorDeclaration, Declaration, Kind, Need, StrategyDeclaration
from core.errors import InvalidArgument
from core.plan import Chosen, Plan
from core.registry import Registry
from core.request import Request
from core.rules import Combination, Party, violations
from core.spellings import parse_devices, parse_name
from core.vocabulary import MODULE_BRINGS

MANY = "devices.many"
EQUAL, GLOBAL = "steps.equal", "steps.global"
EXTERNAL = "launch.external"
TRAINED = {
    "": "groups",
    "grad_sync.skip": "accumulated",
    "clip.norm": "clip_norm",
    "clip.value": "clip_value",
    "optimizer.many": "two_optimizers",
    "optimizer.closure": "closure",
    "manual_optimization": "manual",
    "sync_batchnorm": "sync_batchnorm",
    "loss_scaling": "overflow",
}
"""Claims that a training of their own shows, with its case; "" is what every strategy has to do."""
ALSO_NEEDED = {"sync_batchnorm": ("sync_batchnorm.kernel",)}
TRIED = ("autocast.", "dtype.", "collective.", "grad_scaler")
"""An accelerator's claims, or how they begin, that can be tried on one device."""


class Standing(NamedTuple):
    """Whether a claim is made here, and if so, why it can still not be checked ("" when it can)."""

    claimed: bool
    hindrance: str = ""


@dataclass(frozen=True)
class Setup:
    """The plugins to check and the plan to check them in."""

    registry: Registry
    named: tuple[Kind, ...]
    plan: Plan
    tolerance: float | None = None
    options: Options = field(default_factory=dict)

    def declaration(self, kind: Kind) -> Declaration:
        """Return the declaration of the plugin of ``kind`` in the plan."""
        return self.chosen(kind).declaration

    def chosen(self, kind: Kind) -> Chosen:
        """Return the plugin of ``kind`` in the plan."""
        return self.plan.chosen[KINDS.index(kind)]

    @property
    def names(self) -> Combination:
        """The names that choose these plugins and no others."""
        every = ((c.declaration.kind, f"{c.distribution}:{c.name}") for c in self.plan.chosen)
        return Combination(*(self.registry.reference(self.registry.find(*each)) for each in every))

    def standing(self, token: str) -> Standing:
        """Say whether the plan provides ``token``, and whether it may be asked for in this combination."""
        if not self.plan.provides(token) and not (token == GLOBAL and self.compares):
            return Standing(False)
        needs = tuple(Need(each, "the check asks for it") for each in (token, *ALSO_NEEDED.get(token, ())))
        broken = violations([*self.plan.parties, Party("the check", needs=needs, asks=True)], MODULE_BRINGS)
        return Standing(True, "; ".join(map(str, broken)))

    @property
    def compares(self) -> bool:
        """Whether runs are held to the hand-written loop: it is claimed, or a tolerance says how closely."""
        return self.tolerance is not None or self.plan.provides(GLOBAL)

    @property
    def tried(self) -> tuple[str, ...]:
        """What the accelerator claims and can be tried on its device."""
        return tuple(token for token in self.declaration("accelerator").provides if token.startswith(TRIED))

    def programs(self) -> list[Program]:
        """Return what has to run for the checks; each is started only when a check asks for it."""
        main = [self._job("plain")]
        if "strategy" in self.named or "precision" in self.named:
            main += [self._job(case) for token, case in TRAINED.items() if not token or self._can(token)]
            main.append(self._job("saved"))
        if "accelerator" in self.named:
            main.append(replace(self._job("device"), tokens=self.tried))
        programs = [Program("main", tuple(main))]
        if "strategy" in self.named:
            main.append(self._job("exchange"))
            if self.plan.world_size > 1:
                main.append(self._job("missing"))
            programs = [Program("main", tuple(main)), *self._strategy_programs()]
        again = [self._resumed("resumed", "middle.ckpt")] if "saved" in [job.case for job in main] else []
        raised = [self._job("raised")] if "strategy" in self.named else []
        return [*programs, Program("second", (*again, *raised))] if again or raised else programs

    def _can(self, token: str) -> bool:
        standing = self.standing(token)
        return standing.claimed and not standing.hindrance

    def _job(self, case: str) -> Job:
        return Job(case, case, *self.names, self.plan.num_devices, self.plan.world_size, options=self.options)

    def _resumed(self, name: str, checkpoint: str, strategy: str = "") -> Job:
        """Return the job that goes on from a checkpoint; with another strategy or name, on one device."""
        job = replace(self._job("saved"), name=name, resume=f"../main/saved/{checkpoint}")
        if name == "resumed":
            return job
        job = replace(job, devices=1, ranks=1, alone=True)
        if not strategy:
            return job
        return replace(job, strategy=strategy, options={**self.options, "strategy": {}})

    def _strategy_programs(self) -> list[Program]:
        programs = []
        alone = []
        if self._can("checkpoint.other_world_size") and not one_device(self):
            alone.append(self._resumed("other_world_size", "epoch.ckpt"))
        if self._can("checkpoint.full"):
            alone.append(self._resumed("without_strategy", "epoch.ckpt", lone_strategy(self.registry)))
        if alone:
            programs.append(Program("alone", tuple(alone)))
        if self._can(EXTERNAL):
            endpoint = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1")
            count = ("--nproc-per-node", str(self.plan.world_size))
            launcher = ("-m", "torch.distributed.run", *endpoint, *count)
            programs.append(Program("external", (replace(self._job("plain"), name="launched"),), launcher))
        return programs


def one_device(setup: Setup) -> str:
    """Return why there is nothing to see of several devices; "" when there is."""
    return "this run has one device" if setup.plan.num_devices == 1 else ""


def lone_strategy(registry: Registry) -> str:
    """Return the most preferred strategy that runs alone in one process and needs nothing."""
    alone = [
        (declaration.preference, reference)
        for reference, declaration in registry.sound("strategy")
        if isinstance(declaration, StrategyDeclaration) and declaration.ranks == "run" and not declaration.needs
    ]
    return max(alone)[1]


def make_setup(
    registry: Registry,
    names: Mapping[str, str],
    *,
    devices: int | None = None,
    tolerance: float | None = None,
    options: Sequence[str] = (),
) -> Setup:
    """Resolve what was named as a Trainer in a script would; ``options`` are written ``"name=value"``.

    Raises:
        InterlockError: as the Trainer would.
    """
    count = parse_devices(1 if devices is None else devices)
    accelerator, precision, strategy = (parse_name(kind, names.get(kind)) for kind in KINDS)
    # the runs are scripts of their own, whoever started this process
    texts = _read_options(registry, names, options)
    given = {kind: tuple((name, read_value(text)) for name, text in texts[kind].items()) for kind in texts}
    request = Request(accelerator, precision, strategy, count, options=given)
    plan = registry.resolve(request)
    if devices is None and "strategy" in names and MANY in plan.strategy.declaration.provided:
        declared = plan.accelerator.declaration
        assert isinstance(declared, AcceleratorDeclaration), "the registry holds each kind to its class"
        here = probe(declared).count
        if here is None or here > 1:
            plan = registry.resolve(replace(request, devices=parse_devices(2)))
    named = tuple(kind for kind in KINDS if kind in names)
    return Setup(registry, named, plan, tolerance, {str(kind): each for kind, each in texts.items()})


def _read_options(registry: Registry, names: Mapping[str, str], options: Sequence[str]) -> dict[Kind, dict[str, str]]:
    """Give each option to the named plugin that has it."""
    found: dict[Kind, dict[str, str]] = {}
    known: dict[str, Kind] = {}
    for kind in KINDS:
        declaration = registry.find(kind, names[kind]).declaration if kind in names and options else None
        known.update((option.name, kind) for option in (declaration.options if declaration else ()))
    for option in options:
        name, _, text = option.partition("=")
        if name not in known:
            raise InvalidArgument(f"no plugin that is checked has the option {name!r}; options: {', '.join(known)}")
        found.setdefault(known[name], {})[name] = text
    return found
