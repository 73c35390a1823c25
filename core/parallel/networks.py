"""The network device over which gloo's ranks reach each other.

Left to itself gloo takes the address that the machine's own name leads to. On many machines that is a loopback address,
and then ranks on different hosts wait for each other until the timeout.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator

from core.session import Ranks

LOOPBACK_DEVICE = "lo" if sys.platform.startswith("linux") else None
"""The device on which the processes of one machine find each other."""
GET_ADDRESS = 0x8915
"""Linux's ioctl SIOCGIFADDR: the IPv4 address of a network device (netdevice(7))."""


def network_device(address: str) -> str | None:
    """Return the name of the device from which this machine reaches ``address``; None where that cannot be told.

    A connected UDP socket sends nothing, but has the address of the device that it would send from.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
            names = [name for _, name in socket.if_nameindex() if _address_of(probe, name) == own]
    except OSError:
        return None
    if own.startswith("127."):
        return LOOPBACK_DEVICE
    return names[0] if names else None


def network_between(ranks: Ranks, address: str) -> str | None:
    """Return the device from which this rank reaches the first one's ``address``.

    Several hosts are not joined by a loopback device, though a host's own name may lead there.
    """
    device = network_device(address)
    several = ranks.world_size > ranks.local_world_size
    return None if several and device == LOOPBACK_DEVICE else device


def _address_of(any_socket: socket.socket, name: str) -> str | None:
    import fcntl  # there is none on Windows

    try:
        answer = fcntl.ioctl(any_socket.fileno(), GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return None  # it has no IPv4 address
    return socket.inet_ntoa(answer[20:24])


@contextlib.contextmanager
def sockets_over(device: str | None, *variables: str) -> Iterator[None]:
    """Let sockets that are opened inside use ``device``, where the user has set none of the ``variables`` for it."""
    ours = [name for name in variables if device is not None and name not in os.environ]
    os.environ.update(dict.fromkeys(ours, str(device)))
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
