"""The pytest plugin stays out of the way until the kit is asked for."""

import pytest

from core.conformance.cases import read_value
from core.conformance.plugin import EXAMPLE, FOLDER, is_asked
from core.conformance.setup import make_setup
from core.errors import InvalidArgument
from core.registry import get_registry


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["--pyargs", "core.conformance", "--strategy", "ring"], True),
        (["--pyargs", "core.conformance.test_training"], True),
        (["core.conformance::test_rules.py"], True),
        ([str(FOLDER / "test_rules.py")], True),
        (["tests"], False),
        (["--strategy=core.conformance"], False),
        ([], False),
    ],
)
def test_asked(tmp_path, arguments, asked):
    """The kit is asked for by naming its package or one of its files."""
    assert is_asked(arguments, tmp_path) is asked


def test_other_runs_are_left_alone(kit):
    """Where the kit is not asked for, another conftest has its options for itself, and torch is not imported."""
    (kit.folder / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    for name in ('--devices', '--strategy', '--accelerator', '--precision', '--tolerance'):\n"
        "        parser.addoption(name)\n"
    )
    (kit.folder / "test_own.py").write_text(
        "import sys\n"
        "def test_own(pytestconfig):\n"
        "    assert pytestconfig.getoption('--devices') == 'mine'\n"
        "    assert not {'torch', 'core.registry', 'core.conformance.session'} & set(sys.modules)\n"
        "    assert 'core.conformance.plugin' in sys.modules\n"
    )
    answer = kit.pytest("--devices", "mine", "-W", "error")
    assert answer.code == 0, answer.out
    assert "interlock" not in answer.out.replace("interlock-", "")


def test_collects_nothing_by_itself(kit):
    """A run that comes by the package without asking for it collects none of the checks."""
    answer = kit.pytest(str(FOLDER.parent), "--collect-only", "-q", "--ignore-glob=*/tuner/*")
    assert "test_training" not in answer.out


def test_help(kit):
    """The help shows the options in a group of their own, with an example."""
    answer = kit("--help")
    assert answer.code == 0
    assert EXAMPLE in " ".join(answer.out.split())
    for option in ("--strategy", "--accelerator", "--precision", "--devices", "--option", "--tolerance"):
        assert f"{option}=" in answer.out


def test_clash(kit):
    """Two owners of one option are an error that says what to do."""
    (kit.folder / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--devices')\n")
    answer = kit("--strategy", "single_device")
    assert answer.code == 4
    assert "run the kit from another folder" in answer.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name the plugin to check with --strategy, --accelerator or --precision"),
        (("--strategy", "dpp"), "unknown strategy 'dpp'; did you mean"),
        (("--precision", "16-mixed", "--devices", "0"), "at least 1 is needed"),
        (("--precision", "16-mixed", "-n", "2"), "run it with -n 0"),
    ],
)
def test_usage_errors(kit, arguments, words):
    """What cannot be checked is refused with the words of the Trainer, before anything runs."""
    answer = kit(*arguments)
    assert answer.code == 4
    assert words in answer.out


def test_found_under_foreign_settings(kit):
    """The checks are collected whatever patterns the settings of the current folder have."""
    (kit.folder / "pytest.ini").write_text(
        "[pytest]\npython_files = check_*.py\npython_functions = check\nempty_parameter_set_mark = fail_at_collect\n"
        "addopts = --strict-markers --strict-config\nfilterwarnings = error\n"
    )
    answer = kit("--strategy", "single_device", "--collect-only", "-q")
    assert answer.code == 0, answer.out
    assert "test_training.py::test_plain_training" in answer.out


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("True", True), ("('a', 'b')", ("a", "b")), ("1f1b", "1f1b"), ("None", None)],
)
def test_option_values(text, value):
    """An option is written as in Python, or as a bare word."""
    assert read_value(text) == value


def test_options_reach_the_plugin():
    """An option goes to the plugin that has it, into the plan and into every job but those of another strategy."""
    names = {"strategy": "ddp", "accelerator": "cpu"}
    setup = make_setup(get_registry(), names, options=["static_graph=True", "timeout=9"])
    assert dict(setup.plan.strategy.options)["static_graph"] is True
    given = {job.name: job.options["strategy"] for program in setup.programs() for job in program.jobs}
    assert given.pop("without_strategy") == {}
    assert all(options == {"static_graph": "True", "timeout": "9"} for options in given.values())


def test_unknown_option():
    """An option that no checked plugin has is refused with those that they have."""
    with pytest.raises(InvalidArgument, match="no plugin that is checked has the option 'speed'; options: find_unused"):
        make_setup(get_registry(), {"strategy": "ddp"}, options=["speed=3"])
