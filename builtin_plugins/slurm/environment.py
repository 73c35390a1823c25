"""Recognise a task of a SLURM job step, and tell it from a shell in an allocation."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
from collections.abc import Mapping

from core.errors import InvalidArgument
from core.session import LaunchEnvironment, Ranks, refuse_beyond, whole_variable

SECONDS = 10.0
"""How long SLURM's own command may take to answer."""
FIRST_PORT, PORTS = 15000, 10000
BATCH_STEPS = ("batch", "interactive", "extern", "4294967291", "4294967290", "4294967292")
"""Steps that are no srun of the user's, by their names and by SLURM's numbers for them."""
SHELLS = ("bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh")
INTERACTIVE = (*SHELLS, "interactive")
"""Names of jobs that began with a person's shell; salloc calls its own ``interactive``, whatever srun starts in it."""


def detect(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return SLURM if this process is one of the tasks of a step with several or of a batch job's srun.

    A shell in an allocation sees the job's variables too, but no task was started for it: SLURM_PROCID is missing, or
    the job's first step is the shell itself. What srun starts from there has the job's name too.

    Raises:
        InvalidArgument: when a variable does not hold a whole number, or two contradict each other.
    """
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID")
    if job is None:
        return None
    shell = _is_shell(env)
    if shell or "SLURM_PROCID" not in env or env.get("SLURM_STEP_ID", BATCH_STEPS[0]) in BATCH_STEPS:
        what = "a shell" if shell else "the batch script"
        return LaunchEnvironment("none", f"in {what} of SLURM job {job}; srun starts one process per task")
    tasks = whole_variable(env, "SLURM_STEP_NUM_TASKS", whole_variable(env, "SLURM_NTASKS", 1))
    nodes = whole_variable(env, "SLURM_STEP_NUM_NODES", whole_variable(env, "SLURM_NNODES", 1))
    if tasks % nodes:
        raise InvalidArgument(
            f"SLURM started {tasks} tasks (SLURM_NTASKS) on {nodes} nodes (SLURM_NNODES): every node needs as many\n"
            "  hint: give srun --ntasks-per-node"
        )
    ranks = Ranks(
        whole_variable(env, "SLURM_PROCID"),
        whole_variable(env, "SLURM_LOCALID"),
        whole_variable(env, "SLURM_NODEID"),
        tasks,
        tasks // nodes,
    )
    refuse_beyond("SLURM_PROCID", ranks.global_rank, "SLURM_NTASKS", tasks)
    refuse_beyond("SLURM_NODEID", ranks.node_rank, "SLURM_NNODES", nodes)
    reason = f"started by SLURM job {job} (SLURM_NTASKS={tasks}, SLURM_NNODES={nodes})"
    tokens = ("launched.external", "launched.slurm")
    requeue = ("scontrol", "requeue", job)
    return LaunchEnvironment("slurm", reason, ranks, _address(env), _port(env, job), tokens, requeue, job)


def _is_shell(env: Mapping[str, str]) -> bool:
    """Tell whether this was typed in a shell that is a task: the only one, or of several the one with a terminal."""
    name = env.get("SLURM_JOB_NAME")
    if name not in INTERACTIVE or "SLURM_PROCID" not in env:
        return name in INTERACTIVE
    alone = env.get("SLURM_STEP_NUM_TASKS", env.get("SLURM_NTASKS", "1")) == "1"
    return alone or (name in SHELLS and "SLURM_PTY_PORT" in env and env.get("SLURM_STEP_ID") == "0")


def _address(env: Mapping[str, str]) -> str:
    """Return MASTER_ADDR if the batch script set it, else the first node of the list."""
    if env.get("MASTER_ADDR"):
        return env["MASTER_ADDR"]
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST", "")
    return node_address(first_node(nodes)) if nodes else "127.0.0.1"


def node_address(name: str) -> str:
    """Return ``name`` if it can be looked up; else the address that SLURM's own configuration has for the node."""
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["scontrol", "show", "--oneliner", "node", name]
            told = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS).stdout
            match = re.search(r"NodeAddr=(\S+)", told)
            if match:
                return match[1]
    return name


def first_node(nodes: str) -> str:
    """Return the first name of a node list, such as ``gpu003`` of ``gpu[003-005,9],cpu1``."""
    match = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,]*))?", nodes)
    return "".join(part or "" for part in match.groups()) if match else ""


def _port(env: Mapping[str, str], job: str) -> int:
    """Return MASTER_PORT if the batch script set it, else one that follows from the job's number."""
    if env.get("MASTER_PORT"):
        return whole_variable(env, "MASTER_PORT")
    digits = "".join(character for character in job if character.isdigit())
    step = env.get("SLURM_STEP_ID", "0")
    return FIRST_PORT + (int(digits or 0) * 7 + (int(step) if step.isdigit() else 0)) % PORTS
