"""Find devices that can be used, on machines where others hold some of them."""

from __future__ import annotations

import json
import subprocess
import sys

from core.errors import InterlockError, InvalidArgument

PROBE_TIMEOUT = 300.0
PROBE = """
import json, torch
count = torch.cuda.device_count()
usable = []
for index in range(count):
    try:
        torch.ones(1, device=torch.device("cuda", index)).add_(1).item()
        usable.append(index)
    except RuntimeError:
        pass
    if len(usable) == {wanted}:
        break
print(json.dumps([count, usable]))
"""


def find_usable_cuda_devices(num_devices: int = -1) -> list[int]:
    """Return the first ``num_devices`` CUDA devices on which memory can be had, -1 for all of them.

    A device in exclusive mode that another process holds is passed over. They are tried in a process of their own, so
    that nothing stays behind on them.

    Raises:
        InvalidArgument: for 0, or for more devices than there are.
        InterlockError: when fewer can be used, naming those.
    """
    if isinstance(num_devices, bool) or not isinstance(num_devices, int) or num_devices == 0 or num_devices < -1:
        raise InvalidArgument(f"num_devices={num_devices!r} must be -1 for all, or a whole number of at least 1")
    count, usable = _probe(num_devices)
    if num_devices > count:
        raise InvalidArgument(f"num_devices={num_devices}, but this machine shows {count} CUDA devices")
    if len(usable) < num_devices:
        raise InterlockError(f"{num_devices} CUDA devices are asked for, and only {usable} of {count} can be used")
    return usable


def _probe(wanted: int) -> tuple[int, list[int]]:
    """Return how many devices there are, and which of them can be used."""
    command = [sys.executable, "-c", PROBE.format(wanted=wanted)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise InterlockError(f"the process that tries CUDA devices failed: {lines[-1]}")
    count, usable = json.loads(done.stdout.splitlines()[-1])
    return int(count), [int(index) for index in usable]
