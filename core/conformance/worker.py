"""The script behind the checks: ``python -m core.conformance.worker FOLDER`` works through the jobs in a folder.

A strategy may run it again in other processes, or spawn some; only the process that was started first writes how a
job ended. A job that fails ends the program, since nobody knows in which state it left the others; whoever started
it starts it again for the jobs that are left.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from core.callbacks import Callback
from core.conformance import probes
from core.conformance.cases import CASES, Job, read_value
from core.conformance.model import KitModule, samples_of
from core.conformance.recorder import Recorder, Saver
from core.data.nested import detach_to_host
from core.declarations import KINDS
from core.discovery import load_object
from core.registry import get_registry
from core.trainer import Trainer

JOBS_FILE, OUTCOME_FILE, STARTED_FILE, HOME_FILE = "jobs.json", "outcome.json", "started", "home.pt"


def main(folder: Path) -> None:
    """Do every job of the folder's list."""
    first = os.environ.get("RANK", "0") == "0"  # strategies and launchers give it to the others
    for entry in json.loads((folder / JOBS_FILE).read_text()):
        job = Job(**entry)
        place = folder / job.name
        place.mkdir(exist_ok=True)
        (place / STARTED_FILE).touch()
        if job.case == "raised":
            _run(job, place, first)  # what it raises is what the check looks at
            continue
        try:
            _run(job, place, first)
        except Exception as error:
            if first:
                _write(place, {"ok": False, "error": f"{type(error).__name__}: {error}"})
            raise
        if first:
            _write(place, {"ok": True})


def _write(place: Path, outcome: dict[str, Any]) -> None:
    partial = place / f"{OUTCOME_FILE}.partial"
    partial.write_text(json.dumps(outcome))
    partial.replace(place / OUTCOME_FILE)


def _run(job: Job, place: Path, first: bool) -> None:
    case = CASES[job.case]
    torch.manual_seed(1)
    module = KitModule(case)
    trainer = Trainer(
        **_plugins(job),
        devices=job.devices,
        callbacks=[Recorder(job, place), *_callbacks(job, place)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=place,
        **case.trainer_arguments(),
    )
    loader = DataLoader(samples_of(case, job.samples), batch_size=job.per_rank)
    trainer.fit(module, loader, ckpt_path=job.resume or None)
    if first:
        torch.save(detach_to_host(dict(module.sequential_module.state_dict())), place / HOME_FILE)
    trainer.end_run()


def _plugins(job: Job) -> dict[str, Any]:
    """Return what the Trainer takes for each kind: a name, or where options are given, an instance."""
    given: dict[str, Any] = {"accelerator": job.accelerator, "precision": job.precision, "strategy": job.strategy}
    for kind in KINDS:
        options = {name: read_value(text) for name, text in job.options.get(kind, {}).items()}
        if options:
            declaration = get_registry().find(kind, given[kind]).declaration
            assert declaration is not None, "the session has resolved it"
            implementation: Any = load_object(declaration.implementation, "import of the implementation")
            given[kind] = implementation(**options)
    return given


def _callbacks(job: Job, place: Path) -> list[Callback]:
    during = CASES[job.case].during
    if during == "save" and not job.resume:
        return [Saver(place)]
    if during == "exchange":
        return [probes.Exchange(place)]
    if during == "missing":
        return [probes.Missing(place)]
    if during == "device":
        return [probes.Device(place, job.tokens)]
    return []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
