"""Start and stop a small SLURM cluster on this machine: a controller and two nodes, all on the loopback address.

Needs Debian's packages slurm-wlm and munge, and root. Everything lives in one folder; the processes are ended by
the numbers that they were started with, and nothing of an installed SLURM is touched.

Point SLURM's commands at the cluster with the variable that ``start`` prints:

    export SLURM_CONF=FOLDER/slurm.conf
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TOOLS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "scontrol")
NODES = ("n1", "n2")
START_SECONDS = 60

CONFIGURATION = """\
ClusterName=interlock
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
ReturnToService=2
JobRequeue=1
KillWait=5
UnkillableStepTimeout=30
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def write_configuration(folder: Path) -> None:
    """Write slurm.conf and the key that munge signs with."""
    ports = free_ports(1 + len(NODES))
    host = socket.gethostname()
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
        for name, port in zip(NODES, ports[1:], strict=True)
    )
    text = CONFIGURATION.format(host=host, ports=ports, folder=folder, nodes=nodes, names=",".join(NODES))
    (folder / "slurm.conf").write_text(text)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(exist_ok=True)


def start(folder: Path) -> int:
    """Start the cluster and wait until both nodes are idle."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None and not Path("/usr/sbin", tool).exists()]
    if missing:
        print(f"not installed: {', '.join(missing)}; apt-get install slurm-wlm munge", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    write_configuration(folder)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    commands = {
        "munged": [
            "munged",
            "--foreground",
            "--force",
            "--num-threads=2",
            f"--socket={folder}/munge.socket",
            f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munged.pid",
            f"--seed-file={folder}/munged.seed",
            f"--log-file={folder}/munged.log",
        ],
        "slurmctld": ["slurmctld", "-D", "-c"],
        **{f"slurmd-{node}": ["slurmd", "-D", "-N", node] for node in NODES},
    }
    numbers: dict[str, int] = {}
    for name, command in commands.items():
        with open(folder / f"{name}.out", "w") as out:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
        numbers[name] = process.pid
        (folder / "processes.json").write_text(json.dumps(numbers))
        if name == "munged":
            _wait(lambda: (folder / "munge.socket").exists(), "munge opens its socket")
    try:
        _wait(lambda: _idle(environment), "both nodes are idle")
    except TimeoutError as error:
        print(f"{error}; see the logs in {folder}", file=sys.stderr)
        stop(folder)
        return 1
    print(f"export SLURM_CONF={folder}/slurm.conf")
    return 0


def _idle(environment: dict[str, str]) -> bool:
    command = ["sinfo", "--noheader", "--format=%D %t"]
    seen = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
    return seen.stdout.split() == [str(len(NODES)), "idle"]


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {START_SECONDS} s until {what}")
        time.sleep(0.2)


def stop(folder: Path) -> int:
    """End the processes that ``start`` started, the controller last."""
    record = folder / "processes.json"
    numbers: dict[str, int] = json.loads(record.read_text()) if record.exists() else {}
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for number in reversed(numbers.values()):
            if _alive(number):
                os.kill(number, sign)
        deadline = time.monotonic() + 10
        while any(_alive(number) for number in numbers.values()) and time.monotonic() < deadline:
            time.sleep(0.1)
    record.unlink(missing_ok=True)
    return 0


def _alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="example: python scripts/slurm_cluster.py start --folder /var/tmp/cluster",
    )
    parser.add_argument("command", choices=("start", "stop"))
    parser.add_argument("--folder", type=Path, required=True, help="where the cluster's files go")
    options = parser.parse_args()
    action = start if options.command == "start" else stop
    return action(options.folder.resolve())


if __name__ == "__main__":
    raise SystemExit(main())
