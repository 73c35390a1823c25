"""The pages on callbacks, loggers and searches run, and name everything that there is."""

import inspect
import re
from pathlib import Path

import pytest

import core.callbacks
import core.loggers
from core.tuner import Tuner

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["callbacks.md", "loggers.md", "tuner.md"])
def test_snippets_run(page, tmp_path, monkeypatch):
    """The examples of a page run one after the other."""
    for package in ("mlflow", "tensorboard"):
        if package in (DOCS / page).read_text():
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    names = {"__name__": "page"}
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)):
        exec(compile(code, f"{page}, example {number}", "exec"), names)


def test_everything_is_named():
    """Each public callback and logger, and each argument of ModelCheckpoint and of the searches, is on its page."""
    callbacks, loggers, tuner = ((DOCS / f"{name}.md").read_text() for name in ("callbacks", "loggers", "tuner"))
    assert [name for name in core.callbacks.__all__ if name != "Callback" and f"{name}" not in callbacks] == []
    assert [name for name in core.loggers.__all__ if name not in ("DummyLogger",) and name not in loggers] == []
    arguments = set(inspect.signature(core.callbacks.ModelCheckpoint).parameters)
    assert [name for name in sorted(arguments) if f"`{name}`" not in callbacks] == []
    for search in (Tuner.scale_batch_size, Tuner.lr_find):
        wanted = set(inspect.signature(search).parameters) - {"self", "val_dataloaders", "dataloaders"}
        assert [name for name in sorted(wanted) if name not in tuner] == []
