"""Write the pages of docs/ that say what the code says: the vocabulary and the hooks.

A test holds the pages against what this would write.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import re
import sys
from pathlib import Path

from core import hookspecs
from core.hooktable import HOOKS
from core.vocabulary import VOCABULARY

DOCS = Path(__file__).parents[1] / "docs"
GROUPS = {
    "What an accelerator can do": (
        "autocast.",
        "collective.",
        "cudnn.",
        "device.",
        "devices.indexed",
        "dtype.",
        "grad_scaler",
        "replicas",
        "rpc",
        "spmd",
        "sync_batchnorm.kernel",
    ),
    "What a precision brings": ("amp.", "loss_scaling", "weights."),
    "What the request brings": ("devices.one", "launched.", "session."),
    "What a module brings": ("module.",),
    "What a strategy can do": ("",),
}


def vocabulary_page() -> str:
    """Return the page of tokens."""
    lines = [
        "# The vocabulary",
        "",
        "Declarations are written in these tokens. A plugin *provides*, *needs* and *excludes* tokens; a combination",
        "is valid when every need is met by a provide and nothing excluded is present. `a | b` is met by either.",
        "",
        "- Your own tokens are written `vendor:token`. A token without a prefix has to stand here.",
        "- `asked.X` is present whenever the request or the module needs `X`: a plugin that cannot live with a feature",
        "  excludes the asking for it, although another plugin provides it.",
    ]
    left = dict(VOCABULARY)
    for title, prefixes in GROUPS.items():
        chosen = {token: left.pop(token) for token in list(left) if token.startswith(prefixes)}
        lines += ["", f"## {title}", "", "| token | meaning |", "| --- | --- |"]
        lines += [f"| `{token}` | {meaning} |" for token, meaning in sorted(chosen.items())]
    return "\n".join(lines) + "\n"


def hooks_page() -> str:
    """Return the page of hooks: exact signatures, who owns and wraps each, and what the specification says."""
    head = inspect.getdoc(hookspecs) or ""
    lines = ["# The hooks", "", _markdown(head), ""]
    lines += ["| hook | owner | may wrap it, outermost first |", "| --- | --- | --- |"]
    lines += [
        f"| [`{name}`](#{name}) | {rule.owner} | {', '.join(rule.wrappers) or '-'} |" for name, rule in HOOKS.items()
    ]
    for name in HOOKS:
        function = getattr(hookspecs, name)
        lines += [
            "",
            f"## {name}",
            "",
            "```python",
            signature(name),
            "```",
            "",
            _markdown(inspect.getdoc(function) or ""),
        ]
    return "\n".join(lines) + "\n"


def signature(name: str) -> str:
    """Return the first line of a hook as it is written in the specification."""
    function = getattr(hookspecs, name)
    return f"def {name}{inspect.signature(function)}".replace("'", "")


def _markdown(text: str) -> str:
    """Turn the little markup of our docstrings into Markdown."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r":(?:mod|meth|class|func|data):`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"^:param (\w+): ", r"- `\1`: ", text, flags=re.MULTILINE)
    text = re.sub(r"^:returns: ", "- returns ", text, flags=re.MULTILINE)
    text = re.sub(r"^:raises (\w+): ", r"- raises `\1` ", text, flags=re.MULTILINE)
    return re.sub(r"\n    +", "\n  ", text)


def systems_page() -> str:
    """Return the page of what the accelerator refactor of 2021 held, row by row, from docs/systems.csv."""
    lines = [
        "# The refactor, row by row",
        "",
        "Interlock grew out of a well-known trainer's accelerator refactor of January 2021. Every part of it works",
        "here, or is named with what takes its place: accelerators (H), precisions (P), training types (S),",
        "environments (E), the connector's rules (C) and the tuner (T).",
        "",
        "| row | what | shown by |",
        "| --- | --- | --- |",
    ]
    with open(DOCS / "systems.csv", newline="") as file:
        lines += [f"| {row['row']} | {row['what']} | `{row['shown by']}` |" for row in csv.DictReader(file)]
    return "\n".join(lines) + "\n"


PAGES = {"vocabulary.md": vocabulary_page, "hooks.md": hooks_page, "systems.md": systems_page}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="example: python scripts/make_docs.py")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is not up to date")
    options = parser.parse_args()
    stale = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not options.check:
                path.write_text(text)
    print(f"{'not up to date' if options.check else 'wrote'}: {', '.join(stale) or 'none'}")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
