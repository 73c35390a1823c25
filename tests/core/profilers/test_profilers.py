"""What profilers measure, and that a run without one calls what it would call if there were none."""

import io
import json
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import Callback
from core.errors import InvalidArgument, WrongType
from core.profilers import Profiler, PyTorchProfiler, SimpleProfiler, make_profiler


class Small(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        pass


class Net(Scored):
    """Measures something of its own, and keeps what its step is in the loop."""

    def training_step(self, batch, batch_idx):
        with self.trainer.profiler.profile("mine"):
            return super().training_step(batch, batch_idx)

    def on_train_start(self):
        step = self.trainer._run.loop.step
        self.called = step._step, step._backward, step._on_batch_end


def fit(profiler, **settings):
    module = Net()
    trainer = quiet_trainer(profiler=profiler, callbacks=[Small()], num_sanity_val_steps=0, **settings)
    trainer.fit(module, loader(4), loader(2))
    return trainer, module


def test_simple_profiler_counts_what_a_run_does(monkeypatch):
    """Hooks, steps, callbacks, loaders and the module's own parts are counted, with their seconds."""
    now = iter(range(1_000_000))
    monkeypatch.setattr("core.profilers.simple.time", SimpleNamespace(perf_counter=lambda: float(next(now))))
    profiler = SimpleProfiler(console=Console(file=io.StringIO()))
    kept = {}
    monkeypatch.setattr(profiler, "finish", lambda trainer, stage: kept.update({r.action: r for r in profiler.rows()}))
    fit(profiler)
    calls = {action: row.calls for action, row in kept.items()}
    expected = {"training_step": 4, "mine": 4, "backward": 4, "optimizer_step": 4, "Small.on_train_batch_end": 4}
    expected |= {
        "train_dataloader": 4,
        "validation_step": 2,
        "validation_dataloader": 2,
        "Net.on_validation_epoch_end": 1,
    }
    assert {action: calls[action] for action in expected} == expected
    # each look at the clock is a second later; a step looks at it once more inside
    assert (kept["backward"].total, kept["mine"].total, kept["training_step"].total) == (4.0, 4.0, 12.0)
    assert "reduce" not in calls  # which does nothing in a run of one process


def test_table_and_file(tmp_path):
    """When a stage is over a table is shown, the longest first, and written where a folder is given."""
    file = io.StringIO()
    trainer, module = fit(SimpleProfiler(tmp_path, "times", Console(file=file, width=100)))
    trainer.validate(module, loader(2), verbose=False)
    lines = file.getvalue().splitlines()
    assert lines[0].strip() == "time of fit, rank 0"
    assert lines[1].split() == ["action", "calls", "mean", "ms", "total", "s", "share"]
    assert any(line.split()[:2] == ["training_step", "4"] for line in lines)
    assert "time of validate, rank 0" in file.getvalue()
    text = (tmp_path / "times-fit-rank0.txt").read_text()
    assert "training_step" in text
    assert (tmp_path / "times-validate-rank0.txt").exists()


def test_named_profiler_speaks_on_standard_error(capsys):
    """Trainer(profiler="simple") shows its table on standard error and leaves no file."""
    fit("simple")
    assert "time of fit, rank 0" in capsys.readouterr().err


def test_pytorch_profiler_writes_a_trace(tmp_path, capsys):
    """The trace holds operations under the actions they belong to, for as many steps as asked."""
    fit(PyTorchProfiler(tmp_path, "trace", steps=2, wait=1), limit_val_batches=0)
    trace = json.loads((tmp_path / "trace-fit-rank0.pt.trace.json").read_text())
    names = [event.get("name") for event in trace["traceEvents"]]
    assert names.count("training_step") == 2
    assert {"backward", "mine", "aten::addmm"} <= set(names) or {"backward", "mine", "aten::linear"} <= set(names)
    assert "training_step" in capsys.readouterr().err


def test_pytorch_profiler_of_a_short_run(tmp_path):
    """A run with fewer steps than asked leaves what there was; one that waits longer than the run leaves nothing."""
    fit(PyTorchProfiler(tmp_path, steps=50, row_limit=0), limit_train_batches=1, limit_val_batches=0)
    assert [path.name for path in tmp_path.iterdir()] == ["profile-fit-rank0.pt.trace.json"]
    fit(PyTorchProfiler(tmp_path, "late", wait=50), limit_val_batches=0)
    assert len(list(tmp_path.iterdir())) == 1


def test_pytorch_profiler_goes_to_the_loggers_folder(tmp_path):
    """Without a folder the trace lies with the logger's files."""
    trainer, _ = fit(PyTorchProfiler(row_limit=0), logger=True, default_root_dir=tmp_path)
    assert (tmp_path / "interlock_logs/version_0/profile-fit-rank0.pt.trace.json").exists()
    assert trainer.log_dir.endswith("version_0")


def test_no_profiler_no_wrapper():
    """Without a profiler the loop holds the module's own step, the plugin's own hook and the callback's own method."""
    trainer, module = fit(None)
    step, backward, listeners = module.called
    assert step == module.training_step
    assert backward.__self__ is trainer._run.plugins["strategy"]
    assert listeners[0].func.__self__ is trainer.callbacks[0]
    assert type(trainer.profiler) is Profiler


def test_training_is_the_same_with_a_profiler(tmp_path):
    """Measuring changes nothing about what is trained."""
    weights = []
    for profiler in (None, SimpleProfiler(console=Console(file=io.StringIO())), PyTorchProfiler(tmp_path, row_limit=0)):
        torch.manual_seed(2)
        _, module = fit(profiler, accumulate_grad_batches=2)
        weights.append(module.layer.weight)
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_error_inside_is_measured_and_raised():
    """An action that raises is counted, and its error comes out."""
    profiler = SimpleProfiler()

    def broken():
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        profiler.wrap("broken", broken)()
    assert [(row.action, row.calls) for row in profiler.rows()] == [("broken", 1)]


def test_refused():
    """A name that is none's and a value that is no profiler are refused at once."""
    with pytest.raises(InvalidArgument, match="profiler='fast' must be one of 'simple', 'pytorch', or a Profiler"):
        quiet_trainer(profiler="fast")
    with pytest.raises(WrongType, match="not int 3"):
        make_profiler(3)
    with pytest.raises(InvalidArgument, match="steps=0"):
        PyTorchProfiler(steps=0)
