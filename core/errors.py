"""Every exception of Interlock. All derive from :class:`InterlockError`, so one ``except`` catches them.

Each message is built by the class from facts, and the facts stay on the exception as attributes:
code that handles an error never has to parse its text.
"""

# ruff: noqa: N818 - the names say what is wrong; that they are errors shows where they are raised

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.rules import Combination, Violation


class InterlockError(ValueError):
    """Base of every error that Interlock raises on purpose. Each can be pickled, to be sent home by a rank."""

    def __reduce__(self) -> tuple[Any, ...]:
        # the usual way would call __init__ with the finished message, which most subclasses cannot take
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[InterlockError], args: tuple[Any, ...], attributes: dict[str, Any]) -> InterlockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidArgument(InterlockError):
    """An argument has a value that is not in its table of accepted forms."""


class WrongType(InvalidArgument, TypeError):
    """An argument has a type that its table of accepted forms does not hold."""


class InvalidDeclaration(InterlockError):
    """A plugin's declaration contradicts itself or the vocabulary; ``problems`` lists everything wrong."""

    def __init__(self, subject: str, problems: Sequence[str]) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        super().__init__("\n".join([f"the declaration of {subject} is wrong", *(f"  - {p}" for p in problems)]))


class UnknownPlugin(InterlockError):
    """No plugin of ``kind`` has this name. ``nearest`` holds the closest known names, best first."""

    def __init__(
        self, kind: str, name: str, *, known: Sequence[str], nearest: Sequence[str] = (), hint: str | None = None
    ) -> None:
        self.kind, self.name = kind, name
        self.known, self.nearest, self.hint = tuple(known), tuple(nearest), hint
        near = f"; did you mean {' or '.join(repr(n) for n in nearest)}?" if nearest else ""
        lines = [f"unknown {kind} {name!r}{near}", f"  known here: {', '.join(known) or 'none'}"]
        lines.append(f"  hint: {hint or 'python -m core.registry list --kind ' + kind}")
        super().__init__("\n".join(lines))


class _Refusal(InterlockError):
    """A request that is refused, why, and the nearest that works here.

    ``suggestions`` are other plugins; ``settings``, given where no other plugins help, what to write in place of what
    was asked for.
    """

    def __init__(
        self, subject: str, lines: Sequence[str], suggestions: Sequence[Combination], settings: Sequence[str]
    ) -> None:
        self.subject, self.suggestions, self.settings = subject, tuple(suggestions), tuple(settings)
        super().__init__("\n".join([*lines, *_suggested(self.suggestions, self.settings)]))


class InvalidCombination(_Refusal):
    """The declarations contradict each other: every broken rule, then the nearest that works here."""

    def __init__(
        self,
        subject: str,
        violations: Sequence[Violation],
        suggestions: Sequence[Combination] = (),
        settings: Sequence[str] = (),
    ) -> None:
        self.violations = tuple(violations)
        lines = [f"{subject} cannot work together"]
        for violation in self.violations:
            lines += [f"  - {violation.fact}", f"    reason: {violation.reason}"]
        super().__init__(subject, lines, suggestions, settings)


class PluginUnavailable(_Refusal):
    """The combination is valid, but a package or the hardware for it is missing here."""

    def __init__(
        self,
        subject: str,
        reasons: Sequence[str],
        suggestions: Sequence[Combination] = (),
        settings: Sequence[str] = (),
    ) -> None:
        self.reasons = tuple(reasons)
        lines = [f"{subject} cannot run here", *(f"  - {reason}" for reason in self.reasons)]
        super().__init__(subject, lines, suggestions, settings)


def _suggested(suggestions: Sequence[Combination], settings: Sequence[str]) -> list[str]:
    combinations = ["nearest combinations that work here:", *(f"  {s}" for s in suggestions)] if suggestions else []
    changes = ["the same works here with:", *(f"  {s}" for s in settings)] if settings else []
    return combinations + changes


class OtherAPI(InterlockError, TypeError):
    """A declaration that this version cannot make, for it states that it was written for another ``api``."""

    def __init__(self, api: int, reason: str) -> None:
        self.api, self.reason = api, reason
        super().__init__(f"written for API {api}: {reason}")


class PluginBroken(InterlockError):
    """A plugin's own code failed in ``phase``; its exception is the ``__cause__``."""

    def __init__(self, kind: str, name: str, *, distribution: str, phase: str, reason: str) -> None:
        self.kind, self.name = kind, name
        self.distribution, self.phase, self.reason = distribution, phase, reason
        super().__init__(
            f"{kind} {name!r} from {distribution} is broken\n"
            f"  while: {phase}\n"
            f"  reason: {reason}\n"
            f"  hint: report it to the authors of {distribution}, or turn it off with INTERLOCK_BLOCK={name}"
        )


class DuplicatePlugin(InterlockError):
    """Several plugins claim one name; none wins silently. ``choices`` holds a spelling that chooses each."""

    def __init__(
        self, kind: str, name: str, distributions: Sequence[str], choices: Sequence[str] | None = None
    ) -> None:
        self.kind, self.name = kind, name
        self.distributions = tuple(distributions)
        self.choices = tuple(choices or (f"{distribution}:{name}" for distribution in distributions))
        super().__init__(
            f"{kind} {name!r} is claimed by {len(self.distributions)} plugins, from {', '.join(self.distributions)}\n"
            f"  hint: choose one as {' or '.join(map(repr, self.choices))}, or turn one off with INTERLOCK_BLOCK"
        )


class CheckpointError(InterlockError):
    """A checkpoint cannot be written or read; the message names the file."""


class RankFailed(InterlockError, RuntimeError):
    """A process of the run failed; ``rank`` is the first that did, ``traceback_text`` what it raised, if anything."""

    def __init__(self, rank: int, world_size: int, what: str, traceback_text: str = "") -> None:
        self.rank, self.world_size, self.what = rank, world_size, what
        self.traceback_text = traceback_text
        super().__init__(f"rank {rank} of {world_size} failed: {what}")

    def __reduce__(self) -> tuple[type[RankFailed], tuple[int, int, str, str]]:
        return type(self), (self.rank, self.world_size, self.what, self.traceback_text)


class WaitTimeout(InterlockError, RuntimeError):
    """A wait between ranks ran out; the message names the meeting point and who did not come."""
