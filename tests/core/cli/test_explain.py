"""``explain``: the plan or the error, word for word as the Trainer has it."""

import json

import pytest

from core.errors import InterlockError
from core.registry import get_registry
from core.request import Features, Request


def as_the_trainer(**arguments):
    """Return what making a Trainer from a script would print."""
    features = Features(**arguments.pop("features", {}))
    request = Request.build(**arguments, features=features)
    return str(get_registry().resolve(Request(**{**vars(request), "session": "session.script"})))


CASES = [
    ([], {}),
    (["--strategy", "ddp", "--devices", "2"], {"strategy": "ddp", "devices": "2"}),
    (["--accelerator", "cpu", "--precision", "bf16"], {"accelerator": "cpu", "precision": "bf16"}),
    (["--accelerator", "cpu", "--devices", "0,1"], {"accelerator": "cpu", "devices": "0,1"}),
    (["--accelerator", "cpu", "--devices", "-1"], {"accelerator": "cpu", "devices": "-1"}),
    (["--strategy", "ddp_shared"], {"strategy": "ddp_shared"}),
    (["--num-nodes", "2"], {"num_nodes": 2}),
    (["--devices", "0"], {"devices": "0"}),
    (["--precision", ""], {"precision": ""}),
    (
        ["--gradient-clip-val", "0.5", "--gradient-clip-algorithm", "value", "--accumulate-grad-batches", "4"],
        {
            "features": {
                "gradient_clip_val": 0.5,
                "gradient_clip_algorithm": "value",
                "accumulate_grad_batches": 4,
            }
        },
    ),
    (
        ["--accelerator", "cpu", "--sync-batchnorm", "--strategy", "ddp", "--devices", "2"],
        {"accelerator": "cpu", "strategy": "ddp", "devices": 2, "features": {"sync_batchnorm": True}},
    ),
]


@pytest.mark.parametrize(("options", "arguments"), CASES)
def test_explain_says_what_the_trainer_says(cli, options, arguments):
    """Explain prints the plan and ends with 0, or prints the very text of the error and ends with 1."""
    answer = cli("explain", *options)
    try:
        expected, code = as_the_trainer(**arguments), 0
    except InterlockError as error:
        expected, code = str(error), 1
    assert answer.out == expected + "\n"
    assert answer.code == code


def test_json_of_a_plan(cli):
    """A plan in JSON is what is written into checkpoints."""
    answer = cli("explain", "--accelerator", "cpu", "--strategy", "ddp", "--devices", "2", "--json")
    plan = json.loads(answer.out)
    assert (plan["strategy"]["name"], plan["devices"], plan["world_size"]) == ("ddp", 2, 2)


def test_json_of_an_error(cli):
    """An error in JSON holds its type, its text, each broken rule with both sides, and the suggestions."""
    answer = cli("explain", "--accelerator", "cpu", "--strategy", "single_device", "--devices", "2", "--json")
    error = json.loads(answer.out)
    assert answer.code == 1
    assert error["error"] == "InvalidCombination"
    assert error["message"].startswith("accelerator='cpu', precision='32-true' (auto), strategy='single_device'")
    assert error["violations"][0]["token"] == "devices.many"
    assert {"accelerator": "cpu", "precision": "32-true", "strategy": "ddp"} in error["suggestions"]


def test_interactive_asks_as_from_a_notebook(cli):
    """With --interactive a strategy that runs the script again is refused, as it would be in a notebook."""
    options = ["--accelerator", "cpu", "--strategy", "ddp", "--devices", "2"]
    assert cli("explain", *options).code == 0
    answer = cli("explain", *options, "--interactive")
    assert answer.code == 1
    assert "a prompt or notebook has no script to run" in answer.out


def test_broken_plugin_is_explained(cli, site):
    """Asking for a broken plugin says what broke, without a traceback."""
    site.plugin("acme", "strategy", "ring", source="raise ImportError('no libring')")
    answer = cli("explain", "--strategy", "ring")
    assert answer.code == 1
    assert answer.out.startswith("strategy 'ring' from acme 1.0 is broken\n  while: import\n")
    assert json.loads(cli("explain", "--strategy", "ring", "--json").out)["error"] == "PluginBroken"
