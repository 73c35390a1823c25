"""What a plugin states about itself (torch-free).

A declaration is a frozen dataclass that checks itself when it is built. It is all that ``list``,
``explain`` and ``resolve`` read: the implementation behind ``implementation`` is imported only when a
run has chosen the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from core.errors import InvalidDeclaration, OtherAPI
from core.hooktable import may_wrap
from core.vocabulary import ASKED, is_known, nearest_token
from core.wording import is_printable, shown

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from 3.11 on

API = 1
"""The contract's number. It grows when a hook or a declaration field changes so that older plugins break."""

Kind = Literal["accelerator", "precision", "strategy", "environment"]
KINDS: tuple[Kind, ...] = ("accelerator", "precision", "strategy")
"""The kinds of which a run has exactly one each."""
ALL_KINDS: tuple[Kind, ...] = (*KINDS, "environment")

_NAME = re.compile(r"[a-z0-9][a-z0-9_.\-]*\Z")
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")
_SPECIFIER = re.compile(r"\s*(~=|===?|!=|<=|>=|<|>)\s*[\w.*+!\-]+\s*\Z")


@cache
def split_alternatives(token: str) -> tuple[str, ...]:
    """Return the tokens of ``"a | b"``; remembered, since judging a combination asks for it."""
    return tuple(part.strip() for part in token.split("|"))


class Need(NamedTuple):
    """Something that must be provided: ``token`` (alternatives as ``"a | b"``), and why."""

    token: str
    reason: str

    @property
    def alternatives(self) -> tuple[str, ...]:
        """The tokens of which one is enough."""
        return split_alternatives(self.token)


class Exclude(NamedTuple):
    """A token that must not be present, and why."""

    token: str
    reason: str


class Replaces(NamedTuple):
    """A name that people know from elsewhere, and what to write now: shown where the name is unknown."""

    name: str
    write: str


class Package(NamedTuple):
    """A distribution that must be installed: ``versions`` as in a requirement, ``extra`` of ours that brings it.

    ``module`` is a dotted name that must exist inside it, without being imported: it tells a wrong package of
    the right name from the real one. Where the real one has releases without it, ``known_by`` is a dotted name that
    all of them have. ``install`` says how to get it where ``pip install`` of its name would not.
    """

    name: str
    versions: str = ""
    extra: str = ""
    module: str = ""
    known_by: str = ""
    install: str = ""


class Option(NamedTuple):
    """A keyword of the implementation's constructor that the plan shows."""

    name: str
    default: object
    meaning: str


class Availability(NamedTuple):
    """A probe's answer: ``count`` devices (None: as many as asked), or the ``reason`` why there is none."""

    count: int | None = None  # type: ignore[assignment]  # hides tuple.count, which means nothing here
    reason: str = ""


Probe = Callable[[], Availability]
LATER = "it was written for a later release of this API, or the field is misspelt: upgrade interlock, or correct it"


@dataclass(frozen=True)
class Declaration:
    """One plugin's statement about itself; use the subclass of its kind.

    Args:
        name: what people write in ``Trainer(...)``; lower case letters, digits, ``_ . -``.
        summary: one line for ``list``.
        implementation: ``"module:Class"``, imported only when the plugin is chosen.
        api: the contract number it was written for, see :data:`API`.
        aliases: other spellings of the name.
        provides: tokens it brings, see :mod:`core.vocabulary`.
        needs: what another party must provide.
        excludes: what must not be present.
        packages: distributions its implementation imports.
        wraps: hooks that it wraps with ``hookimpl(wrapper=True)``, beside those that its kind owns.
        options: keywords of its constructor.
        replaces: names known from elsewhere for which it is what to take now.
        preference: "auto" takes the highest that is valid and can run here; 0 or less is never taken.

    Raises:
        InvalidDeclaration: naming every problem at once.
    """

    name: str
    summary: str
    implementation: str
    api: int
    aliases: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    excludes: tuple[Exclude, ...] = ()
    packages: tuple[Package, ...] = ()
    wraps: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    replaces: tuple[Replaces, ...] = ()
    preference: int = 0
    kind: ClassVar[Kind]
    provided: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __new__(cls, *args: object, **given: object) -> Self:
        # before the fields are taken: what this version does not know would be a TypeError that names no API
        names = {each.name: each.default is MISSING for each in fields(cls) if each.init}
        problems = [f"has {_unknown(name, tuple(names))}" for name in given if name not in names]
        api = given.get("api")
        if isinstance(api, int) and _is_whole(api) and api != API:
            problems += [f"has no {name!r}" for name, needed in names.items() if needed and not (args or name in given)]
            if problems:
                raise OtherAPI(api, "; ".join(problems))
        if problems:
            raise InvalidDeclaration(f"{cls.__name__} {shown(given.get('name'))}", [*problems, LATER])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        # a declaration for another API is refused for that reason, not judged by this one's rules
        problems = list(self._problems()) if self.api == API or not _is_whole(self.api) else []
        if problems:
            raise InvalidDeclaration(f"{self.kind} {shown(self.name)}", problems)
        object.__setattr__(self, "provided", frozenset(self.provides))

    def _problems(self) -> list[str]:
        return _form_problems(self) or [
            *_token_problems(self),
            *_package_problems(self.packages),
            *_wrap_problems(self),
            *_option_problems(self.options),
        ]


def _unknown(name: str, known: Sequence[str]) -> str:
    import difflib  # only a wrong field pays for it

    close = difflib.get_close_matches(name, known, n=1)
    return f"the field {name!r}, which is unknown here" + (f" (did you mean {close[0]!r}?)" if close else "")


def _form_problems(declaration: Declaration) -> list[str]:
    """Say what has a wrong type or spelling; only where nothing has, the content can be looked at."""
    problems = _type_problems(declaration)
    aliases = () if problems else declaration.aliases
    for label, text in [("name", declaration.name), *(("alias", alias) for alias in aliases)]:
        if not isinstance(text, str) or not _NAME.match(text):
            problems.append(f"{label} {shown(text)} must be lower-case letters, digits, '_', '.' or '-'")
        elif text == "auto":
            problems.append(f"{label} 'auto' is taken: it asks for a choice")
    summary = declaration.summary
    if not isinstance(summary, str) or not summary.strip() or "\n" in summary or not is_printable(summary):
        problems.append("summary must be one line of text")
    for label, number in [("api", declaration.api), ("preference", declaration.preference)]:
        if not _is_whole(number):
            problems.append(f"{label} must be a whole number, not {shown(number)}")
    return problems + _reference_problems("implementation", declaration.implementation)


def _token_problems(declaration: Declaration) -> list[str]:
    problems = []
    needed = [alternative for need in declaration.needs for alternative in need.alternatives]
    for token in [*declaration.provides, *needed, *(exclusion.token for exclusion in declaration.excludes)]:
        if not is_known(token):
            near = nearest_token(token)
            hint = f"did you mean {near!r}?" if near else "a token of your own is written 'vendor:token'"
            problems.append(f"unknown token {token!r}; {hint}")
    rules: tuple[Need | Exclude, ...] = (*declaration.needs, *declaration.excludes)
    for rule in rules:
        if not rule.reason.strip():
            problems.append(f"{rule.token!r} has no reason; write the sentence people will read in the error")
    for token in declaration.provides:
        if token.startswith(ASKED):
            problems.append(f"provides {token!r}, which only asking for {token.removeprefix(ASKED)!r} brings")
        if any(exclusion.token == token for exclusion in declaration.excludes):
            problems.append(f"both provides and excludes {token!r}")
    return problems


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _package_problems(packages: Sequence[Package]) -> list[str]:
    nameless = ["a package has no name"] if any(not package.name.strip() for package in packages) else []
    return nameless + [
        f"package {package.name!r}: versions {package.versions!r} must be written as in a requirement, like '>=1.2'"
        for package in packages
        if package.versions and not all(_SPECIFIER.match(part) for part in package.versions.split(","))
    ]


def _reference_problems(label: str, text: str) -> list[str]:
    good = isinstance(text, str) and _REFERENCE.match(text)
    return [] if good else [f"{label} {shown(text)} must have the form 'module:Name'"]


def _wrap_problems(declaration: Declaration) -> list[str]:
    allowed = may_wrap(declaration.kind)
    return [
        f"wraps {hook!r}, which a {declaration.kind} may not; it may wrap {', '.join(allowed)}"
        for hook in declaration.wraps
        if hook not in allowed
    ]


_ENTRY_TYPES: Mapping[str, type[Any]] = {
    "aliases": str,
    "provides": str,
    "needs": Need,
    "excludes": Exclude,
    "packages": Package,
    "wraps": str,
    "options": Option,
    "replaces": Replaces,
}


def _type_problems(declaration: Declaration) -> list[str]:
    problems = []
    for name, entry in _ENTRY_TYPES.items():
        value = getattr(declaration, name)
        if not isinstance(value, tuple) or not all(_is_entry(item, entry) for item in value):
            problems.append(f"{name} must be a tuple of {entry.__name__}, not {shown(value)}")
        elif not all(is_printable(str(text)) for item in value for text in _texts(item)):
            problems.append(f"{name} holds a character that cannot be printed: {shown(value)}")
    return problems


def _is_entry(item: object, entry: type[Any]) -> bool:
    return isinstance(item, entry) and all(isinstance(text, str) for text in _texts(item))


def _texts(item: object) -> tuple[object, ...]:
    """Return what has to be text in an entry: all of it, but for an option's default."""
    if isinstance(item, Option):
        return item.name, item.meaning
    return tuple(item) if isinstance(item, tuple) else (item,)


def _option_problems(options: Sequence[Option]) -> list[str]:
    names = [option.name for option in options]
    problems = [f"option {name!r} must be the name of a keyword" for name in names if not name.isidentifier()]
    return problems + [f"option {name!r} is declared twice" for name in {*names} if names.count(name) > 1]


@dataclass(frozen=True)
class AcceleratorDeclaration(Declaration):
    """Hardware. ``probe`` is ``"module:function"``: torch-free, opens no device, returns :class:`Availability`."""

    probe: str = ""
    kind: ClassVar[Kind] = "accelerator"

    def _problems(self) -> list[str]:
        return super()._problems() + _reference_problems("probe", self.probe)


@dataclass(frozen=True)
class PrecisionDeclaration(Declaration):
    """Number formats: of the weights, of the arithmetic, and whether the loss is scaled."""

    kind: ClassVar[Kind] = "precision"


@dataclass(frozen=True)
class StrategyDeclaration(Declaration):
    """A way to train on the devices. ``ranks`` says how many processes one run has.

    ``"device"``: one per device; ``"node"``: one per node; ``"run"``: one alone.
    """

    ranks: Literal["device", "node", "run"] = "run"
    kind: ClassVar[Kind] = "strategy"

    def ranks_per_node(self, devices: int) -> int:
        """Return how many processes each node has when it has so many devices."""
        return devices if self.ranks == "device" else 1

    def _problems(self) -> list[str]:
        known = ("device", "node", "run")
        wrong = [] if self.ranks in known else [f"ranks {self.ranks!r} must be one of {', '.join(known)}"]
        return super()._problems() + wrong


@dataclass(frozen=True)
class EnvironmentDeclaration(Declaration):
    """A launcher that starts processes: torchrun, a cluster's scheduler.

    ``implementation`` is ``"module:function"``, torch-free: it takes the environment variables and returns a
    :class:`core.session.LaunchEnvironment`, or None when this launcher did not start the process. The one with the
    highest ``preference`` that answers is taken.
    """

    kind: ClassVar[Kind] = "environment"
