"""Two hosts on one machine: network namespaces joined by a cable, made and taken away by the test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


def available() -> str:
    """Return why there can be no two hosts here; "" when there can."""
    if shutil.which("ip") is None:
        return "the command ip is not installed (apt-get install iproute2)"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    name = f"il{os.getpid()}x"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "this machine does not let us make network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


@dataclass
class Host:
    """One namespace, its end of the cable and its address."""

    name: str
    device: str
    address: str

    def popen(self, command: list[object], **settings: object) -> subprocess.Popen:
        """Start a command on this host."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *map(str, command)], **settings)

    def cut(self) -> None:
        """Pull the cable out."""
        _ip("-n", self.name, "link", "set", self.device, "down")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Make the hosts, and take them away afterwards."""
    stem = f"il{os.getpid()}"
    hosts = tuple(Host(f"{stem}{side}", f"{stem}v{side}", f"10.77.7.{number}") for number, side in enumerate("ab", 1))
    for host in hosts:
        _ip("netns", "add", host.name)
    try:
        _ip("link", "add", hosts[0].device, "type", "veth", "peer", "name", hosts[1].device)
        for host in hosts:
            _ip("link", "set", host.device, "netns", host.name)
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.device)
            _ip("-n", host.name, "link", "set", host.device, "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.name], check=False)
