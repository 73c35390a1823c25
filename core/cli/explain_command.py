"""``explain``: the plan for a combination, or the error, word for word as the Trainer gives it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from core.cli.common import add_names, given_names, load_registry
from core.errors import InterlockError
from core.request import Features, Request
from core.spellings import AUTO

EXAMPLES = """\
examples:
  python -m core.registry explain
  python -m core.registry explain --strategy ddp --devices 2
  python -m core.registry explain --accelerator cuda --precision 16 --gradient-clip-val 1.0 --json
  python -m core.registry explain --strategy ddp --devices 2 --interactive    as from a notebook

exits 0 when the combination can run here, 1 when it cannot
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the Trainer's arguments, spelled as options and with the same defaults."""
    add_names(parser, "as Trainer({kind}=...)")
    settings = Features()
    parser.add_argument("--devices", default=AUTO, help='a count, -1, a list such as "0,1", or "auto" (default)')
    parser.add_argument("--num-nodes", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument("--gradient-clip-val", type=float, default=settings.gradient_clip_val, metavar="X")
    parser.add_argument("--gradient-clip-algorithm", default=settings.gradient_clip_algorithm, metavar="{norm,value}")
    parser.add_argument("--accumulate-grad-batches", type=int, default=settings.accumulate_grad_batches, metavar="N")
    parser.add_argument("--sync-batchnorm", action="store_true")
    parser.add_argument("--benchmark", action="store_true")
    parser.add_argument("--interactive", action="store_true", help="as if asked from a notebook or a prompt")
    parser.add_argument("--json", action="store_true", help="print the plan or the error as an object")


def run(args: argparse.Namespace) -> int:
    """Print the plan and return 0, or print the error and return 1."""
    try:
        plan = load_registry().resolve(_request(args))
    except InterlockError as error:
        _print(_error_as_json(error) if args.json else str(error))
        return 1
    _print(plan.to_dict() if args.json else str(plan))
    return 0


def _request(args: argparse.Namespace) -> Request:
    features = Features(
        args.gradient_clip_val,
        args.gradient_clip_algorithm,
        args.accumulate_grad_batches,
        args.sync_batchnorm,
        args.benchmark,
    )
    names = given_names(args)
    request = Request.build(
        names.get("accelerator"),
        names.get("precision"),
        names.get("strategy"),
        args.devices,
        args.num_nodes,
        features,
    )
    # the answer is for a training script; this program's own start says nothing about it
    return replace(request, session="session.interactive" if args.interactive else "session.script")


def _error_as_json(error: InterlockError) -> dict[str, Any]:
    return {
        "error": type(error).__name__,
        "message": str(error),
        "violations": [violation._asdict() for violation in getattr(error, "violations", ())],
        "reasons": list(getattr(error, "reasons", ())),
        "suggestions": [combination._asdict() for combination in getattr(error, "suggestions", ())],
        "settings": list(getattr(error, "settings", ())),
    }


def _print(answer: dict[str, Any] | str) -> None:
    if isinstance(answer, str):
        print(answer)
        return
    import json

    print(json.dumps(answer, indent=2))
