"""What people write for precision, strategy and devices, held against the plugins that come with Interlock."""

import pytest

from core.declarations import Availability
from core.errors import InterlockError, InvalidArgument, InvalidCombination, PluginUnavailable, UnknownPlugin, WrongType
from core.registry import get_registry
from core.request import Request


def ask(**arguments):
    request = Request.build(**{"accelerator": "cpu", **arguments})
    return get_registry().resolve(Request(**{**vars(request), "session": "session.script"}))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, "32-true"),
        ("auto", "32-true"),
        (32, "32-true"),
        ("32", "32-true"),
        ("32-true", "32-true"),
        ("fp32", "32-true"),
        (64, "64-true"),
        ("64-true", "64-true"),
        (16, "16-mixed"),
        ("16", "16-mixed"),
        ("16-mixed", "16-mixed"),
        ("16_mixed", "16-mixed"),
        ("fp16", "16-mixed"),
        ("FP16", "16-mixed"),
        ("16-true", "16-true"),
        ("bf16", "bf16-mixed"),
        ("BF16-mixed", "bf16-mixed"),
        ("bf16-true", "bf16-true"),
    ],
)
def test_precision_that_is_meant(given, name):
    """Each accepted spelling of a precision means one plugin."""
    assert ask(precision=given).precision.name == name


@pytest.mark.parametrize(
    ("given", "error"),
    [(8, UnknownPlugin), ("half", UnknownPlugin), ("", InvalidArgument), (True, WrongType), (32.0, WrongType)],
)
def test_precision_that_is_not_accepted(given, error):
    """Another spelling is refused with the list of those that are known, or with the type that was given."""
    with pytest.raises(error, match=r"known here: .*32-true|must be a name|is an empty string"):
        ask(precision=given)


@pytest.mark.parametrize("given", ["ddp", "DDP", " ddp ", "Ddp"])
def test_strategy_that_is_meant(given):
    """Case and spaces around a strategy's name do not matter."""
    assert ask(strategy=given, devices=2).strategy.name == "ddp"


def test_strategy_with_dashes():
    """Dash and underscore are the same in a strategy's name."""
    assert ask(strategy="ddp-spawn", devices=2).strategy.name == "ddp_spawn"


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ("ddp_shared", UnknownPlugin, "did you mean 'ddp_sharded'"),
        ("ddp_cpu", UnknownPlugin, "or 'ddp'?"),
        ("cpu", UnknownPlugin, "pass it as accelerator='cpu'"),
        ("", InvalidArgument, "leave it out for 'auto'"),
        (2, WrongType, "not int 2"),
        (object, WrongType, "not type"),
    ],
)
def test_strategy_that_is_not_accepted(given, error, text):
    """A wrong strategy is told the nearest name, the argument it belongs to, or that its type is wrong."""
    with pytest.raises(error, match="strategy") as caught:
        ask(strategy=given)
    assert text in str(caught.value)


TWO_GPUS = [
    (0, InvalidArgument),
    ("0", InvalidArgument),
    ([], InvalidArgument),
    ([0, 0], InvalidArgument),
    (1.5, WrongType),
    (True, WrongType),
    (-1, 2),
    ("auto", 2),
    (1, 1),
    ("2", 2),
    ("0,1", 2),
    ("1,", 1),
    ([0], 1),
    (3, PluginUnavailable),
    ([2], PluginUnavailable),
]


@pytest.mark.parametrize(("devices", "outcome"), TWO_GPUS)
def test_devices_where_there_are_two(monkeypatch, devices, outcome):
    """With two devices present every spelling has one outcome: a number of devices, or an error of one kind."""
    monkeypatch.setattr("core.resolve.probe", lambda declaration: Availability(2))
    monkeypatch.setattr("core.resolve.reasons_against", lambda declaration: [])
    arguments = {"accelerator": "cuda", "strategy": "ddp", "devices": devices}
    if isinstance(outcome, int):
        assert ask(**arguments).num_devices == outcome
    else:
        with pytest.raises(InterlockError) as caught:
            ask(**arguments)
        assert type(caught.value) is outcome


@pytest.mark.parametrize(
    ("devices", "outcome"),
    [
        ("auto", 1),
        (1, 1),
        ("2", 2),
        (3, 3),
        (-1, InvalidCombination),
        ([0], InvalidCombination),
        ("0,1", InvalidCombination),
    ],
)
def test_devices_on_the_host(devices, outcome):
    """On the host's processors any count is fine, all of them is not a number, and none can be picked by index."""
    arguments = {"strategy": "ddp" if outcome != 1 else "auto", "devices": devices}
    if isinstance(outcome, int):
        assert ask(**arguments).num_devices == outcome
    else:
        with pytest.raises(outcome):
            ask(**arguments)
