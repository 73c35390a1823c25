"""What was asked for, and what it needs of the plugins."""

import pytest

from core.errors import InvalidArgument, WrongType
from core.request import Features, Request
from core.session import LaunchEnvironment
from core.spellings import Devices


def tokens(party):
    return [need.token for need in party.needs]


def test_defaults_ask_for_nothing():
    """A request without arguments leaves every choice open and needs nothing."""
    request = Request.build()
    assert (request.accelerator, request.precision, request.strategy) == ("auto", "auto", "auto")
    assert request.devices == Devices()
    assert tokens(request.party(1)) == []


@pytest.mark.parametrize(
    ("features", "needed"),
    [
        ({"gradient_clip_val": 1.0}, ["clip.norm"]),
        ({"gradient_clip_val": 1, "gradient_clip_algorithm": "value"}, ["clip.value"]),
        ({"gradient_clip_val": 0}, []),
        ({"accumulate_grad_batches": 4}, ["grad_sync.skip"]),
        ({"sync_batchnorm": True}, ["sync_batchnorm", "sync_batchnorm.kernel"]),
        ({"benchmark": True}, ["cudnn.benchmark"]),
    ],
)
def test_features_become_needs(features, needed):
    """Each setting needs the token for it, with a reason that quotes the setting."""
    needs = Features(**features).needs()
    assert [need.token for need in needs] == needed
    assert all(need.reason for need in needs)


@pytest.mark.parametrize(
    ("features", "error"),
    [
        ({"gradient_clip_val": -1}, InvalidArgument),
        ({"gradient_clip_val": float("nan")}, InvalidArgument),
        ({"gradient_clip_val": "1"}, WrongType),
        ({"gradient_clip_algorithm": "nrom"}, InvalidArgument),
        ({"accumulate_grad_batches": 0}, InvalidArgument),
        ({"accumulate_grad_batches": 2.5}, WrongType),
        ({"sync_batchnorm": "yes"}, WrongType),
    ],
)
def test_features_check_themselves(features, error):
    """A setting with a value that it cannot have is refused by name."""
    with pytest.raises(error, match=next(iter(features))):
        Features(**features)


@pytest.mark.parametrize(("nodes", "error"), [(0, InvalidArgument), (-1, InvalidArgument), (True, WrongType)])
def test_nodes_are_a_count(nodes, error):
    """The number of nodes is a whole number of at least one."""
    with pytest.raises(error, match="num_nodes"):
        Request.build(num_nodes=nodes)


def test_devices_and_nodes_become_needs():
    """Several devices, chosen devices and several nodes each need what provides them."""
    request = Request(devices=Devices(indices=(0, 1)), num_nodes=2)
    assert tokens(request.party(2)) == [
        "devices.many",
        "nodes.many",
        "launched.external",
        "devices.indexed",
    ]


def test_session_and_launcher_become_provides():
    """The request brings where it comes from and who started it."""
    request = Request(
        session="session.script",
        environment=LaunchEnvironment("torchrun", "by torchrun", tokens=("launched.torchrun",)),
    )
    assert request.party(2).provides == {"session.script", "launched.torchrun"}


def test_one_device_becomes_a_provide():
    """The request says that one device is all, unless there are more devices or nodes."""
    assert "devices.one" in Request().party(1).provides
    assert "devices.one" not in Request().party(2).provides
    assert "devices.one" not in Request(num_nodes=2).party(1).provides
