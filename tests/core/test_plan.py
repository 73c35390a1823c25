"""The frozen plan, in words and in plain types."""

import dataclasses
import json

import pytest
from support.declared import accelerator, precision, registry_of, strategy

from core.declarations import Option
from core.hooktable import HOOKS
from core.request import Request
from core.rules import Party
from core.spellings import Devices


@pytest.fixture
def plan():
    team = strategy(
        "team",
        provides=("devices.many", "launch.spawn"),
        wraps=("setup_device",),
        options=(Option("bucket", 25, "MB"), Option("group", object, "not plain")),
        ranks="device",
    )
    half = precision("half", provides=("loss_scaling",), wraps=("backward", "optimizer_step"))
    npu = accelerator("npu", "four", wraps=("teardown", "optimizer_step"))
    request = Request("npu", "half", "team", Devices(count=2))
    return registry_of(npu, half, team).resolve(request)


def test_plan_cannot_be_changed(plan):
    """A plan is frozen: what was checked is what runs."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.num_devices = 8


def test_plan_prints_what_will_run(plan):
    """The printed plan names each plugin with its distribution, the devices, the processes and who wraps what."""
    text = str(plan)
    assert text.startswith("plan\n")
    for part in (
        "npu  [fake 1.0]  asked for",
        "bucket=25",
        "2  asked for",
        "2  spawn: ",
        "setup_device (team > npu)",
        "optimizer_step (npu > half > team)",
    ):
        assert part in text


def test_plan_in_plain_types(plan):
    """The plan as a dictionary survives JSON; an option that is not plain is written as it prints."""
    plain = json.loads(json.dumps(plan.to_dict()))
    assert plain["strategy"]["name"] == "team"
    assert plain["strategy"]["options"] == {"bucket": 25, "group": "<class 'object'>"}
    assert (plain["devices"], plain["world_size"], plain["launch"]) == (2, 2, "spawn")
    assert set(plain["hooks"]) == set(HOOKS)
    assert plain["hooks"]["backward"] == {"owner": "team", "wrappers": ["half"]}


def test_plan_answers_for_all_parties(plan):
    """The plan knows what any of its plugins, or the request, provides."""
    assert plan.provides("loss_scaling")
    assert plan.provides("session.script")
    assert not plan.provides("spmd")
    assert [type(party) for party in plan.parties] == [Party] * 4
