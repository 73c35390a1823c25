"""Open the store that the processes of a run share."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore

from core.parallel.networks import network_between
from core.parallel.rendezvous import Rendezvous
from core.session import LaunchEnvironment, end_with_parent

LOOPBACK = "127.0.0.1"


def host_store(timeout: float) -> tuple[TCPStore, int]:
    """Open a store on this machine's loopback address; return it and its port."""
    listener = socket.socket()
    listener.bind((LOOPBACK, 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    store = TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout),
        master_listen_fd=listener.detach(),
    )
    return store, port


def join_store(host: str, port: int, timeout: float) -> TCPStore:
    """Open the store that another process hosts."""
    return TCPStore(host, port, wait_for_workers=False, timeout=timedelta(seconds=timeout))


def join_external(environment: LaunchEnvironment, timeout: float) -> Rendezvous:
    """Meet the peers that a launcher started, at the address that it gave."""
    ranks = environment.ranks
    assert ranks is not None, "a launcher that started all processes numbered them"
    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent(os.getppid())  # the agent: where it is killed, nobody else ends its workers
    agent_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    store = TCPStore(
        environment.address,
        environment.port,
        is_master=ranks.global_rank == 0 and not agent_hosts,
        wait_for_workers=False,
        multi_tenant=True,  # the user's script may have opened the store already, for a process group of its own
        timeout=timedelta(seconds=timeout),
    )
    # an elastic launcher keeps its store over restarts: the keys of a former attempt must not be met again
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Rendezvous(
        PrefixStore(f"interlock/attempt{attempt}", store), ranks, network_between(ranks, environment.address)
    )
