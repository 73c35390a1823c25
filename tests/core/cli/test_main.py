"""The command line as a whole: help, exit codes, and the ways to start it."""

import subprocess
import sys

import pytest

from core import __version__
from core.cli.main import COMMANDS


def test_no_command_shows_the_help(cli):
    """Without a command the help is printed, which names every command."""
    answer = cli()
    assert answer.code == 0
    assert all(f"    {name} " in answer.out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example(cli, command):
    """The help of each command ends with examples that start with the command itself."""
    answer = cli(command, "--help")
    assert answer.code == 0
    assert f"  python -m core.registry {command}" in answer.out


@pytest.mark.parametrize(
    "arguments",
    [["no-such"], ["list", "--no-such"], ["list", "--kind", "x"], ["explain", "--num-nodes", "x"], ["list", "--str"]],
)
def test_wrong_usage_is_2(cli, arguments):
    """An unknown command, option or value ends with 2 and the usage on standard error."""
    answer = cli(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert "usage:" in answer.err


@pytest.mark.parametrize("command", ["list", "matrix"])
def test_unknown_name_is_1(cli, command):
    """A name that no plugin has ends with 1 and the nearest names on standard error."""
    answer = cli(command, "--strategy", "ddp_shared")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith("error: unknown strategy 'ddp_shared'; did you mean 'ddp_sharded'")


def test_command_runs_from_any_folder(site, tmp_path):
    """The command does not depend on the folder that it is started in."""
    done = site.run("-m", "core.registry", "list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_reader_that_stops_reading(site):
    """A reader that has seen enough, as `head`, gets no traceback."""
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'core.registry', 'matrix', '--format', "
    code += "'html'], stdout=subprocess.PIPE, stderr=subprocess.PIPE); p.stdout.read(1); p.stdout.close(); "
    code += "sys.stdout.write(p.stderr.read().decode()); sys.exit(p.wait())"
    for number in range(40):
        site.plugin(f"s{number}", "strategy", f"s{number}")
    done = site.run("-c", code)
    assert done.stdout == ""


def test_a_disk_that_is_full():
    """Where the answer cannot be written, that is an error in one line."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "core.registry", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "error: the answer cannot be written: No space left on device\n"


def test_version(cli):
    """--version tells the release."""
    answer = cli("--version")
    assert (answer.code, answer.out) == (0, f"interlock {__version__}\n")


def test_terminal_that_cannot_show_a_letter(site):
    """A terminal with a narrow encoding gets an escape in place of a letter that it cannot show."""
    site.plugin("acme", "strategy", "ring", source="raise ImportError('\\u2713 missing')")
    done = site.run("-m", "core.registry", "list", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "\\u2713 missing" in done.stdout


def test_wrong_variable_is_1(site):
    """A misspelt environment variable is an error in one line, not a traceback."""
    done = site.run("-m", "core.registry", "list", env={"INTERLOCK_PLUGINS": "bultin"})
    assert done.returncode == 1
    assert done.stderr == "error: environment variable INTERLOCK_PLUGINS='bultin' must be 'builtin' or 'all'\n"


def test_console_script_is_the_same():
    """The module and the console script are the same program."""
    code = "import sys; from core.cli import main; sys.argv = ['interlock', 'list']; sys.exit(main())"
    first = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    second = subprocess.run([sys.executable, "-m", "core.registry", "list"], capture_output=True, text=True, check=True)
    assert first.stdout == second.stdout
