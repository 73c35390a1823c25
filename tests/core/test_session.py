"""Who started this process, read from what a launcher sets and from how the program was started."""

import os
import subprocess
import sys
from types import ModuleType

import pytest

from core.environments import detect_environment
from core.errors import InvalidArgument
from core.session import OWN_PARENT, Ranks, session_token

LAUNCHED = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}


def test_no_launcher():
    """Without a launcher's variables nobody started this process."""
    environment = detect_environment({})
    assert (environment.name, environment.ranks, environment.tokens) == ("none", None, ())


def test_torchrun():
    """The whole set of a launcher's variables means that it started this process, and gives the ranks."""
    environment = detect_environment(
        {**LAUNCHED, "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "TORCHELASTIC_RUN_ID": "x"}
    )
    assert environment.ranks == Ranks(3, 1, 1, 4, 2)
    assert environment.tokens == ("launched.external", "launched.torchrun")
    assert (environment.address, environment.port) == ("host", 29500)
    assert "torchrun (WORLD_SIZE=4)" in environment.reason


@pytest.mark.parametrize(
    "stray",
    [{"LOCAL_RANK": "0"}, {"NODE_RANK": "1"}, {"WORLD_SIZE": "8"}, {"RANK": "0", "WORLD_SIZE": "2"}],
)
def test_stray_variables(stray):
    """A variable left over in a shell is no launcher, and the reason names it and what is missing."""
    environment = detect_environment(stray)
    assert environment.name == "none"
    assert all(name in environment.reason for name in stray)
    assert "without" in environment.reason


@pytest.mark.parametrize(("name", "value"), [("RANK", "zero"), ("WORLD_SIZE", ""), ("LOCAL_RANK", "1.0")])
def test_variable_that_is_no_number(name, value):
    """A launcher's variable with something else than a whole number is named with its value."""
    with pytest.raises(InvalidArgument, match=f"environment variable {name}='{value}' is not a whole number"):
        detect_environment({**LAUNCHED, name: value})


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"RANK": "4"}, "RANK=4 and WORLD_SIZE=4"), ({"RANK": "-1"}, "RANK=-1"), ({"LOCAL_RANK": "9"}, "LOCAL_RANK=9")],
)
def test_ranks_that_contradict_each_other(wrong, named):
    """A rank beyond the world's size is refused with both numbers, before anyone waits for the others."""
    with pytest.raises(InvalidArgument, match=named):
        detect_environment({**LAUNCHED, **wrong})


def test_process_that_we_started():
    """A process whose parent says it is our own start is ours."""
    assert detect_environment({**LAUNCHED, OWN_PARENT: str(os.getppid())}).name == "interlock"


def test_variables_of_another_process():
    """A process that only inherited a rank's variables is told so, unless a launcher of its own started it."""
    inherited = {**LAUNCHED, OWN_PARENT: "1234567"}
    with pytest.raises(InvalidArgument, match=f"{OWN_PARENT}=1234567"):
        detect_environment(inherited)
    assert detect_environment({**inherited, "TORCHELASTIC_RUN_ID": "x"}).name == "torchrun"


@pytest.mark.parametrize("exists", [True, False])
def test_session_follows_the_main_module(tmp_path, monkeypatch, exists):
    """A program is a script when the file it was started from can be run again."""
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "train.py")
    if exists:
        (tmp_path / "train.py").write_text("")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.delattr(sys, "ps1", raising=False)
    assert session_token() == ("session.script" if exists else "session.interactive")


CODE = "from core.session import session_token; print(session_token())"


@pytest.mark.parametrize(
    ("arguments", "text", "token"),
    [(["-c", CODE], None, "session.interactive"), (["-"], CODE, "session.interactive")],
)
def test_session_of_a_program_without_a_file(arguments, text, token):
    """Code from -c or from standard input is an interactive session."""
    done = subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == token


@pytest.mark.parametrize("arguments", [["train.py"], ["-m", "train"]])
def test_session_of_a_script_or_module(tmp_path, arguments):
    """A script, and a module run with -m, can be run again."""
    (tmp_path / "train.py").write_text(CODE)
    done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "session.script"
