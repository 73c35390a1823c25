"""``python -m core.registry new``: a package that installs, is listed, trains, and passes its own tests at once."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from support.environments import Environment, build_wheels

from core.cli import main
from core.declarations import API, KINDS

NAMES = {"strategy": "my_strategy", "accelerator": "vendor-x", "precision": "fp.other"}


def new(*arguments: object) -> int:
    return main(["new", *map(str, arguments)])


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_it_says_what_to_do_next(tmp_path, capsys):
    """What was written is named, with the commands that install, explain and test it."""
    assert new("strategy", "my_strategy", "--path", tmp_path) == 0
    folder = tmp_path / "interlock-my-strategy"
    out = capsys.readouterr().out
    for command in (
        f"pip install -e {folder}",
        "python -m core.registry explain --strategy my_strategy",
        f"python -m pytest {folder}",
    ):
        assert command in out
    assert files_of(folder) == [
        "README.md",
        "interlock_my_strategy/__init__.py",
        "interlock_my_strategy/strategy.py",
        "pyproject.toml",
        "tests/job.py",
        "tests/test_interlock_my_strategy_declaration.py",
        "tests/test_interlock_my_strategy_training.py",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_whole(tmp_path, kind):
    """No placeholder is left, every module parses, and the API number is a literal that does not grow by itself."""
    assert new(kind, NAMES[kind], "--path", tmp_path, "--package", "some_package") == 0
    folder = tmp_path / "some-package"
    for path in folder.rglob("*.*"):
        text = path.read_text()
        assert "$" not in text, path
        if path.suffix == ".py":
            ast.parse(text)
            assert max(map(len, text.splitlines())) <= 120, path
    project = (folder / "pyproject.toml").read_text()
    assert '\nname = "some-package"\n' in project
    assert f'\n"{NAMES[kind]}" = "some_package:DECLARATION"\n' in project
    assert f"api={API}," in (folder / "some_package" / "__init__.py").read_text()


BAD_NAMES = ["My_strategy", "1st", "two words", "a__b", "-x", "x-", "", "auto", "snake_case!"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused(tmp_path, capsys, name):
    """A name that nobody could write in Trainer(...) is refused in one line, and nothing is written."""
    assert new("strategy", "--path", tmp_path, "--", name) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "cannot be a plugin's name" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("package", "words"),
    [("My-Package", "cannot be imported"), ("class", "cannot be imported"), ("json", "hide"), ("core", "hide")],
)
def test_a_bad_package_is_refused(tmp_path, capsys, package, words):
    """A package that cannot be imported, or would hide another, is refused in one line."""
    assert new("precision", "fine", "--path", tmp_path, "--package", package) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_taken_is_refused(tmp_path, capsys):
    """A name that an installed plugin has would only make a conflict."""
    assert new("strategy", "ddp", "--path", tmp_path) == 1
    assert "strategy 'ddp' is there already, from interlock" in capsys.readouterr().err


def test_a_folder_that_exists_is_left_alone(tmp_path, capsys):
    """Nothing is written over, not even an empty folder."""
    folder = tmp_path / "interlock-mine"
    folder.mkdir()
    assert new("strategy", "mine", "--path", tmp_path) == 1
    assert f"{folder} exists already" in capsys.readouterr().err
    assert not files_of(tmp_path)


def test_a_name_that_no_file_can_have_is_named(tmp_path, capsys):
    """A name that is too long for the file system is one clear line, not a traceback."""
    assert new("strategy", "x" * 300, "--path", tmp_path) == 1
    assert "error: cannot write " in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    """A file where a folder has to be is one clear line, not a traceback."""
    (tmp_path / "file").write_text("")
    assert new("strategy", "mine", "--path", tmp_path / "file") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: cannot write {tmp_path / 'file' / 'interlock-mine'}: ")
    assert error.count("\n") == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("new")


@pytest.fixture(scope="module")
def environment(folder) -> Environment:
    """A fresh environment with a new package of each kind."""
    for kind, name in NAMES.items():
        assert new(kind, name, "--path", folder) == 0
    fresh = Environment(folder / "environment")
    fresh.install(*build_wheels(sorted(folder.glob("interlock-*")), folder / "wheels"))
    return fresh


@pytest.mark.processes
def test_new_packages_are_listed(environment, folder):
    """Built and installed, each is ready."""
    rows = json.loads(environment.registry("list", "--json", cwd=folder).stdout)
    listed = {(row["kind"], row["name"]): row for row in rows}
    for kind, name in NAMES.items():
        row = listed[kind, name]
        distribution = f"interlock-{name.replace('_', '-').replace('.', '-')}"
        assert (row["distribution"], row["version"], row["status"]) == (distribution, "0.1.0", "ready")


@pytest.mark.processes
@pytest.mark.timeout(400)  # the kit trains some forty times
@pytest.mark.parametrize("kind", NAMES)
def test_new_packages_pass_their_own_tests(environment, folder, kind):
    """Each trains, and the tests that it brings pass as they are; one of them runs the conformance kit."""
    tests = folder / f"interlock-{NAMES[kind].replace('_', '-').replace('.', '-')}"
    done = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tests, timeout=390)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
