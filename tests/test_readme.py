"""The README: every snippet runs, every command exists, and what it prints is what is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_dists import write_metadata

from core.cli import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
FILES = dict(re.findall(r"^`([\w./]+)`[^\n]*:\n\n```\w+\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
"""The plugin's files: each block that follows a line which begins with its path."""
EXAMPLE = next(text for language, text in BLOCKS if language == "python")
COMMANDS = [
    line.removeprefix("$ ").split("  #")[0].strip()
    for language, text in BLOCKS
    if language == "console"
    for line in text.splitlines()
    if line.startswith("$ ")
]
LIST = "python -m core.registry list"


def run(code: str, cwd: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run ``code`` as a script in ``cwd``, with ``path`` in front of what is installed."""
    (cwd / "script.py").write_text(code)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, path), str(ROOT)])
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.processes
def test_the_example_trains(tmp_path):
    """The first snippet is a whole script: its two processes learn the line 3x + 1."""
    check = "\nif trainer.is_global_zero:\n    print(trainer.callback_metrics['loss'].item(), trainer.world_size)\n"
    done = run(EXAMPLE + check, tmp_path)
    assert done.returncode == 0, done.stderr
    loss, world_size = done.stdout.split()
    assert float(loss) < 0.01
    assert world_size == "2"


@pytest.fixture
def site(tmp_path):
    """Install the README's plugin from its own words into a folder."""
    assert list(FILES) == ["pyproject.toml", "interlock_sign/__init__.py", "interlock_sign/strategy.py"]
    folder = tmp_path / "site"
    for name, text in FILES.items():
        if name.endswith(".py"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    write_metadata(folder, project["name"], project["version"], project["entry-points"])
    return folder


def test_the_plugin_trains(tmp_path, site):
    """The plugin of the README is found by its name and trains the README's example."""
    by_name = EXAMPLE.replace('strategy="ddp_sharded", devices=2', 'strategy="sign"')
    assert by_name != EXAMPLE
    check = "\nprint(trainer.plan)\nprint(trainer.callback_metrics['loss'].item())\n"
    done = run(by_name + check, tmp_path, site)
    assert done.returncode == 0, done.stderr
    assert "sign  [interlock-sign 1.0]  asked for" in done.stdout
    assert float(done.stdout.splitlines()[-1]) < 0.1


def test_the_plugin_is_listed_and_held_to_what_it_declares(tmp_path, site):
    """The plugin is in the list, its declaration imports no torch, and what it does not provide is refused."""
    code = (
        "import sys\nfrom core.cli import main\n"
        "print(main(['list', '--kind', 'strategy']), 'torch' in sys.modules)\n"
        "print(main(['explain', '--accelerator', 'cpu', '--strategy', 'sign', '--devices', '2']))\n"
    )
    done = run(code, tmp_path, site)
    assert re.search(r"^strategy +sign +- +interlock-sign 1\.0 .* ready$", done.stdout, re.MULTILINE), done.stdout
    assert "\n0 False\n" in done.stdout
    assert done.stdout.endswith("\n1\n")
    assert "devices.many" in done.stdout + done.stderr


def test_the_plugin_takes_ten_lines():
    """A plugin is written in about ten lines: what runs is ten or fewer, and so is what declares it."""
    for name, text in FILES.items():
        if name.endswith(".py"):
            assert len([line for line in text.splitlines() if line.strip()]) <= 10


def columns(table: str) -> list[list[str]]:
    """Return the cells of each row; they are parted by two spaces or more."""
    return [re.split(r" {2,}", line.strip()) for line in table.strip().splitlines()]


def test_the_list_is_the_real_one(capsys):
    """The list in the README is the one that the command prints; only what this machine lacks may differ."""
    printed = next(text for _, text in BLOCKS if text.startswith(f"$ {LIST}\n")).split("\n", 1)[1]
    code = "import sys; from core.cli import main; sys.exit(main(['list']))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    real = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    shown, found = columns(printed), [row for row in columns(real) if row[3] in ("FROM",) or "interlock " in row[3]]
    hint = f"put this into README.md:\n{real}"
    assert [row[:5] for row in shown] == [row[:5] for row in found], hint
    for mine, other in zip(shown, found, strict=True):
        assert mine == other or "unavailable" in mine[5] + other[5], hint


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command, capsys):
    """Each command of the README is one: a target, an option that is known, an extra that is declared."""
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        wanted = re.search(r"\[([\w,]+)\]", command)
        assert wanted is not None
        assert set(wanted[1].split(",")) <= set(project["optional-dependencies"])
    elif words[:3] == ["python", "-m", "core.registry"]:
        main([*words[3:], "--help"])
        assert "unrecognized" not in capsys.readouterr().err
        assert main(words[3:]) == 0, capsys.readouterr()
    else:
        assert words[0] == "python"
        done = subprocess.run(
            [sys.executable, ROOT / words[1], *words[2:], "--help"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_links_lead_somewhere():
    """Each link of the README and of the contributors' page to a file of the project leads to one."""
    for page in ("README.md", "CONTRIBUTING.md", "docs/index.md"):
        path = ROOT / page
        targets = re.findall(r"\]\(([^)#]+?)(?:#[\w-]+)?\)", path.read_text(encoding="utf-8"))
        missing = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
        assert missing == [], page


def test_extras_are_all_named():
    """The README names every extra that can be installed."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    line = re.search(r"^The extras are .*(?:\n.+)*", README, re.MULTILINE)
    assert line is not None
    assert set(re.findall(r"`(\w+)`", line[0])) == set(extras)


def test_the_extra_brings_what_the_example_imports():
    """The extra that the README installs before an example brings the packages that the example imports."""
    extra, script = re.search(r'pip install "\.\[(\w+)\]"\n\$ python (\S+)', README).groups()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = " ".join(extras[extra])
    for name in re.findall(r"interlock\[([\w,]+)\]", brought):
        brought += " ".join(requirement for one in name.split(",") for requirement in extras[one])
    imported = {"sklearn": "scikit-learn", "matplotlib": "matplotlib"}
    source = (ROOT / script).read_text() + (ROOT / "core" / "loggers" / "plots.py").read_text()
    needed = {
        package for module, package in imported.items() if re.search(rf"^\s*(from|import) {module}", source, re.M)
    }
    assert needed == set(imported.values())
    assert all(package in brought for package in needed)
