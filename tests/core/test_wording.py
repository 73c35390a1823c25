"""What other people's code says becomes text of a bounded length that can be printed."""

import pytest

from core.wording import LONGEST, is_printable, printable, shown, told


class MuteError(Exception):
    """An error whose text cannot be had."""

    def __str__(self):
        raise SystemExit(0)

    def __repr__(self):
        raise RuntimeError("no")


class StoppedError(Exception):
    """An error whose text comes with a Ctrl-C."""

    def __str__(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such file"), "ValueError: no such file"),
        (SystemExit(), "SystemExit"),
        (MuteError(), "MuteError: its text cannot be had, for that raises SystemExit"),
        (ImportError("one\ntwo\x1b[31m"), "ImportError: one\ntwo\\x1b[31m"),
        (OSError("caf\u00e9 \udce4"), "OSError: caf\u00e9 \\udce4"),
    ],
    ids=["plain", "empty", "mute", "colours", "surrogate"],
)
def test_errors(error, text):
    """An error is its type and its text, whatever asking for the text does."""
    assert told(error) == text


def test_long_texts_are_cut():
    """A text as long as a book is cut, and says how much is missing."""
    text = told(ValueError("x" * 5_000_000))
    assert len(text) < LONGEST + 100
    assert text.endswith("more characters)")
    assert printable("abcdef", 3) == "abc... (3 more characters)"


def test_objects():
    """An object is its repr, or its type where there is none."""
    endless: list = []
    endless.append(endless)
    assert shown(endless) == "[[...]]"
    assert shown(MuteError()) == "<MuteError, whose repr raises RuntimeError>"
    assert shown(10**5000) == "<int, whose repr raises ValueError>"


def test_ctrl_c_passes():
    """A Ctrl-C while a text is asked for is the user's."""
    with pytest.raises(KeyboardInterrupt):
        told(StoppedError())


@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "\u202eevil", "\udce4", "\x00"])
def test_what_cannot_be_printed(text):
    """Characters that steer a terminal or that no file can hold are told apart from letters of any language."""
    assert not is_printable(text)
    assert is_printable(printable(text))
    assert is_printable("\u65e5\u672c\u8a9e, \u00e9t\u00e9\u00a0:\tzwei\nZeilen")
