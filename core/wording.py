"""Put what other people's code says into our own messages, whatever it says (torch-free).

An error's text and an object's repr are code of a stranger: they may raise, be as long as a book, or move the
cursor of a terminal. What comes out of here is text of a bounded length that can be printed.
"""

from __future__ import annotations

import re

LONGEST = 1000
"""Characters of a message that are kept."""

# what controls a terminal or turns the direction of the line, and halves of letters that no file can hold
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def told(error: BaseException) -> str:
    """Return the error as ``"Type: text"``, or its type alone where it has no text or cannot say it."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # SystemExit too: nothing that an error says may end the program
        text = f"its text cannot be had, for that raises {type(problem).__name__}"
    return printable(f"{type(error).__name__}: {text}".removesuffix(": "))


def shown(value: object) -> str:
    """Return ``repr(value)``, or the type alone where there is none."""
    try:
        text = repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        text = f"<{type(value).__name__}, whose repr raises {type(problem).__name__}>"
    return printable(text)


def printable(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` with escapes for what cannot be printed, cut to ``longest`` characters; line breaks stay."""
    if len(text) > longest:
        text = f"{text[:longest]}... ({len(text) - longest} more characters)"
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def is_printable(text: str) -> bool:
    """Tell whether ``text`` holds nothing that would have to be escaped."""
    return _UNPRINTABLE.search(text) is None
