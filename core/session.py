"""Where this process comes from: a script or a prompt, and who started it (torch-free, changes nothing).

Only what is written in the environment and in ``__main__`` is read. A variable alone proves nothing: a
lone ``LOCAL_RANK`` left over in a shell is not a launcher, so each environment asks for its whole set.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from core.errors import InvalidArgument

OWN_PARENT = "INTERLOCK_PARENT"
"""Set for a process that Interlock started by running the script again: the pid of the one that did."""


def start_folder() -> str:
    """Return the folder that this program was started in, as far as it shows, else the one that it is in now.

    It shows in a script's path as it was given, and for ``-m`` in the first place that modules are sought in.
    """
    main = sys.modules.get("__main__")
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if path and spec is not None and sys.path and os.path.isabs(sys.path[0]):
        names = spec.name.split(".")
        if os.path.splitext(path)[0] == os.path.join(sys.path[0], *names):
            return sys.path[0]
    given = sys.argv[0] if sys.argv else ""
    if path and given and not os.path.isabs(given) and path.endswith(os.sep + given):
        return path[: -len(given) - 1] or os.sep
    return os.getcwd()


START_FOLDER = start_folder()
"""The folder in which ranks that run this program again start."""

EXTERNAL = "launched.external"
LAUNCHER_SET = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class Ranks(NamedTuple):
    """Which process of a run this is; all counted from 0.

    ``world_size`` counts the ranks that run the loop. A strategy may have more processes than those, which hold
    parts of the model and answer: they are numbered after the others, and :attr:`serves` is true for them.
    """

    global_rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    @property
    def serves(self) -> bool:
        """Whether this process runs no loop, but serves those that do."""
        return self.global_rank >= self.world_size


@dataclass(frozen=True)
class LaunchEnvironment:
    """Who started this process and why we think so.

    Args:
        name: of the launcher.
        reason: one line for the plan, with the variables that it rests on.
        ranks: those that the launcher gave (None: nobody gave any).
        address, port: where rank 0 can be reached.
        tokens: what the launcher brings to a request; ``launched.external`` says that it started all processes.
        requeue: a command that puts the job back into the queue, for schedulers that warn before they end it.
        job: what the scheduler calls the job, the same when it runs again; needed with ``requeue``.

    Raises:
        InvalidArgument: when ``requeue`` is given without ``job``.
    """

    name: str
    reason: str
    ranks: Ranks | None = None
    address: str = ""
    port: int = 0
    tokens: tuple[str, ...] = ()
    requeue: tuple[str, ...] = ()
    job: str = ""

    def __post_init__(self) -> None:
        if self.requeue and not self.job:
            raise InvalidArgument(
                f"environment {self.name!r} says how a job is queued again, but not which job this is\n"
                "  hint: give job= with requeue=, so that no other job goes on from this one's checkpoint"
            )

    @property
    def external(self) -> bool:
        """Whether the launcher started all processes of the run."""
        return EXTERNAL in self.tokens


def session_token() -> str:
    """Return ``session.script`` if this program can be run again as it was started, else ``session.interactive``."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    prompt = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    script = bool(path) and os.path.isfile(str(path)) and not prompt
    return "session.script" if script or imports_script() else "session.interactive"


def imports_script() -> bool:
    """Tell whether multiprocessing has started this process and now imports the script, which is not main yet."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)


def own_environment(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return what this process was told by the Interlock process that started it, None if none did.

    Raises:
        InvalidArgument: when the variables are a rank's own and this process is not that rank.
    """
    if env.get(OWN_PARENT) == str(os.getppid()):
        ranks = read_ranks(env)
        return LaunchEnvironment("interlock", f"rank {ranks.global_rank} started by process {env[OWN_PARENT]}", ranks)
    if OWN_PARENT in env and "TORCHELASTIC_RUN_ID" not in env:
        raise InvalidArgument(
            f"environment variable {OWN_PARENT}={env[OWN_PARENT]} makes this process a rank of process "
            f"{env[OWN_PARENT]}, which did not start it or has ended\n"
            f"  hint: a program that a rank starts inherits its variables; leave out {OWN_PARENT}, RANK and WORLD_SIZE"
        )
    return None


def no_launcher(env: Mapping[str, str]) -> LaunchEnvironment:
    """Return the answer for a process that no launcher started, with the variables that could make one think so."""
    missing = [name for name in LAUNCHER_SET if name not in env]
    stray = [name for name in (*LAUNCHER_SET, "NODE_RANK") if name in env]
    if stray:
        return LaunchEnvironment("none", f"{', '.join(stray)} set, but without {', '.join(missing)}: no launcher")
    return LaunchEnvironment("none", "no launcher's variables are set")


def read_ranks(env: Mapping[str, str]) -> Ranks:
    """Read the ranks from the variables that torchrun and its like set.

    Raises:
        InvalidArgument: when one does not hold a whole number, or two contradict each other.
    """
    world = whole_variable(env, "WORLD_SIZE")
    local_world = whole_variable(env, "LOCAL_WORLD_SIZE", world)
    node = whole_variable(env, "GROUP_RANK", whole_variable(env, "NODE_RANK", 0))
    ranks = Ranks(whole_variable(env, "RANK"), whole_variable(env, "LOCAL_RANK"), node, world, local_world)
    refuse_beyond("RANK", ranks.global_rank, "WORLD_SIZE", world)
    refuse_beyond("LOCAL_RANK", ranks.local_rank, "LOCAL_WORLD_SIZE", local_world)
    return ranks


def refuse_beyond(name: str, rank: int, size_name: str, size: int) -> None:
    """Refuse a rank that is not one of ``size``, before anyone waits for the others.

    Raises:
        InvalidArgument: with both variables and both numbers.
    """
    if not 0 <= rank < size:
        raise InvalidArgument(
            f"environment variables {name}={rank} and {size_name}={size} contradict each other; "
            f"ranks go from 0 to {size_name} - 1"
        )


def whole_variable(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return the variable ``name`` as a whole number; ``default`` where it is not set.

    Raises:
        InvalidArgument: naming the variable and its value.
    """
    text = env.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(str(text))
    except ValueError:
        raise InvalidArgument(f"environment variable {name}={text!r} is not a whole number") from None


_parents: list[int] = []


def end_with_parent(parent: int) -> None:
    """End this process as soon as process ``parent`` is gone, so that no rank is left over."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        end_if_orphaned()  # the main thread may sit in an exchange with a rank that is gone

    _parents[:] = [parent]
    threading.Thread(target=watch, name="interlock-parent-watch", daemon=True).start()


def end_if_orphaned() -> None:
    """End this process at once, in one line, where it should end with its parent and that is gone."""
    if not _parents or os.getppid() == _parents[0]:
        return
    with contextlib.suppress(OSError, ValueError):  # the terminal may be gone with it
        line = f"process {os.getpid()} ends: process {_parents[0]}, which started it, is gone"
        print(line, file=sys.stderr, flush=True)
    os._exit(1)


if os.environ.get(OWN_PARENT) == str(os.getppid()):
    end_with_parent(os.getppid())  # from here on, for much may happen before the run begins
