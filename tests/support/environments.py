"""Build packages to wheels and install them into a fresh environment, without a network.

The environment sees everything that the one running the tests has (torch, Interlock), and has a site-packages of its
own on top: what is installed there has genuine metadata, and is gone with the folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path


def run(*command: object, timeout: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command that has to end well."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, **options)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done


def build_wheels(sources: Sequence[Path], folder: Path) -> list[Path]:
    """Build a wheel of each source folder into ``folder``; the sources themselves stay as they are."""
    with tempfile.TemporaryDirectory() as beside:
        copies = [shutil.copytree(source, Path(beside, source.name)) for source in sources]
        offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
        run(sys.executable, "-m", "pip", "wheel", *offline, "-w", folder, *copies)
    return sorted(folder.glob("*.whl"))


class Environment:
    """A fresh virtual environment on top of the one that runs the tests."""

    def __init__(self, folder: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        windows = os.name == "nt"
        self.python = folder / ("Scripts/python.exe" if windows else "bin/python")
        lines = {f"import site; site.addsitedir({sysconfig.get_path(key)!r})" for key in ("purelib", "platlib")}
        own = run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        Path(own, "parent.pth").write_text("\n".join(sorted(lines)) + "\n")

    def install(self, *wheels: Path) -> None:
        """Install wheels, and nothing else."""
        self._pip("install", "--no-index", "--no-deps", *wheels)

    def uninstall(self, *distributions: str) -> None:
        """Take distributions away again."""
        self._pip("uninstall", "-y", *distributions)

    def _pip(self, *arguments: object) -> None:
        run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python, *arguments)

    def run(self, *arguments: object, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run its Python in ``cwd``; the folder itself is not on the path."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
        words = [str(word) for word in (self.python, *arguments)]
        options = {"capture_output": True, "text": True, "timeout": timeout, "cwd": cwd, "env": environment}
        return subprocess.run(words, check=False, **options)

    def registry(self, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run ``python -m core.registry``."""
        return self.run("-m", "core.registry", *arguments, cwd=cwd)
