"""How devices, precisions and names may be spelled."""

import pytest

from core.errors import InvalidArgument, WrongType
from core.spellings import Devices, fold, nearest, parse_devices, parse_name


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("auto", Devices()),
        ("AUTO", Devices()),
        (1, Devices(count=1)),
        (2, Devices(count=2)),
        ("2", Devices(count=2)),
        (" 2 ", Devices(count=2)),
        (-1, Devices(count=-1)),
        ("-1", Devices(count=-1)),
        ([0], Devices(indices=(0,))),
        ([0, 2], Devices(indices=(0, 2))),
        ((1, 0), Devices(indices=(1, 0))),
        ("0,1", Devices(indices=(0, 1))),
        ("0, 1", Devices(indices=(0, 1))),
        ("1,", Devices(indices=(1,))),
    ],
)
def test_devices_spelled_as_in_the_table(given, meant):
    """Each accepted spelling of devices has one meaning; a string that is one number is a count."""
    assert parse_devices(given) == meant


@pytest.mark.parametrize("given", [0, "0", -2, "-2", [], "", ",", [0, 0], "1,1", [-1], "0,-1", "two", "0;1", "1.5"])
def test_devices_with_a_value_outside_the_table(given):
    """A count below one, an empty list, a repeated or negative index and free text are refused."""
    with pytest.raises(InvalidArgument, match="accepted:") as caught:
        parse_devices(given)
    assert not isinstance(caught.value, WrongType)
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize("given", [True, False, 1.5, 2.0, None, {0}, [0, True], [0, "1"], [1.0], object])
def test_devices_of_another_type(given):
    """A bool or a float is not a count, and the message names the type that was given."""
    with pytest.raises(WrongType, match="devices"):
        parse_devices(given)


@pytest.mark.parametrize("devices", ["auto", "2", "-1", "[0, 2]"])
def test_devices_print_as_they_may_be_written(devices):
    """Parsed devices print in a form that reads back to the same."""
    parsed = parse_devices(eval(devices) if devices.startswith("[") else devices)
    assert str(parsed) == devices


@pytest.mark.parametrize(
    ("given", "name"), [(None, "auto"), (16, "16"), ("16-mixed", "16-mixed"), (" BF16 ", "BF16"), ("32", "32")]
)
def test_precision_spelled_as_name_or_number(given, name):
    """A precision may be a name or an integer, and None asks for the default."""
    assert parse_name("precision", given) == name


@pytest.mark.parametrize("given", [True, 32.0, 16.0, ["16"], object, b"16"])
def test_precision_of_another_type(given):
    """True is not precision 1, and a float is not a precision."""
    with pytest.raises(WrongType, match="precision must be a name \\(a string\\) or an int, not"):
        parse_name("precision", given)


@pytest.mark.parametrize("given", [1, True, 1.5, ["ddp"], object, object()])
def test_strategy_of_another_type(given):
    """A strategy that is no name is called a wrong type, not an unknown name."""
    with pytest.raises(WrongType, match="strategy must be a name"):
        parse_name("strategy", given)


@pytest.mark.parametrize("given", ["", "   "])
def test_name_that_is_empty(given):
    """An empty name is refused; leaving the argument out is how to ask for a choice."""
    with pytest.raises(InvalidArgument, match="leave it out for 'auto'"):
        parse_name("strategy", given)


@pytest.mark.parametrize(("left", "right"), [("DDP", "ddp"), ("ddp-spawn", "ddp_spawn"), (" Fp16 ", "FP16")])
def test_fold_makes_spellings_equal(left, right):
    """Case, and the difference between dash and underscore, do not matter in a name."""
    assert fold(left) == fold(right)


def test_nearest_puts_the_closest_first():
    """The names that look like a misspelt one come closest first, in their own spelling."""
    assert nearest("ddp_shared", ["single", "ddp_spawn", "DDP_Sharded"])[0] == "DDP_Sharded"
    assert nearest("horse", ["single", "ddp"]) == []
