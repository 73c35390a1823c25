"""Several loggers at once, hyperparameters at the start of a fit, and what ranks but 0 may do."""

import io
import pickle

import pytest
import torch
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import DataModule, Logger
from core.loggers import ConsoleLogger, CSVLogger, DummyLogger
from core.loggers.base import Nothing, flattened, prefixed


class Notes(Logger):
    """Keeps what it is told, in order."""

    def __init__(self):
        self.told = []

    def log_metrics(self, metrics, step):
        self.told.append(("metrics", step, sorted(metrics)))

    def log_hyperparams(self, params):
        self.told.append(("hyperparameters", params))

    def log_graph(self, model):
        self.told.append(("graph", type(model).__name__))

    def finalize(self, status):
        self.told.append((status,))


class Net(Scored):
    """Keeps hyperparameters of several kinds."""

    def __init__(self, lr=0.1, sizes=(1, 2), device=torch.device("meta"), told=True):
        super().__init__()
        self.save_hyperparameters(ignore=["told"], logger=told)


class Data(DataModule):
    def __init__(self, lr=0.5, folder="here"):
        super().__init__()
        self.save_hyperparameters()

    def train_dataloader(self):
        return loader(2)


def fit(module, *loggers, datamodule=None, **settings):
    trainer = quiet_trainer(logger=list(loggers), log_every_n_steps=2, **settings)
    data = {} if datamodule is not None else {"train_dataloaders": loader(2)}
    trainer.fit(module, datamodule=datamodule, **data)
    return trainer


def test_all_loggers_are_told_the_same(tmp_path):
    """Each of several loggers gets the hyperparameters first, then every metric, then how the run ended."""
    first, second = Notes(), Notes()
    trainer = fit(Net(), first, second, CSVLogger(tmp_path))
    assert first.told == second.told
    assert [item[0] for item in first.told] == ["hyperparameters", "graph", "metrics", "success"]
    assert (trainer.logger, trainer.loggers[1]) == (first, second)
    assert trainer.log_dir.startswith(str(tmp_path))


def test_hyperparameters_are_plain():
    """Hyperparameters come in plain types; what has no plain form comes as text."""
    notes = Notes()
    fit(Net(lr=0.25), notes)
    assert notes.told[0] == ("hyperparameters", {"lr": 0.25, "sizes": (1, 2), "device": "meta"})


def test_hyperparameters_that_are_not_for_loggers():
    """save_hyperparameters(logger=False), or none at all, hands nothing over."""
    for module in (Net(told=False), Scored()):
        notes = Notes()
        fit(module, notes)
        assert notes.told[0] == ("graph", type(module).__name__)


def test_module_and_data_module():
    """Hyperparameters of the data module go too; where both have one, the module's goes and a warning says so."""
    notes = Notes()
    with pytest.warns(UserWarning, match="module and data module differ in lr; the module's go to the loggers"):
        fit(Net(), notes, datamodule=Data())
    assert notes.told[0][1]["lr"] == 0.1
    assert notes.told[0][1]["folder"] == "here"


def test_failed_run_is_told():
    """A run that fails is told as such."""

    class Failing(Scored):
        def training_step(self, batch, batch_idx):
            raise OSError("no data")

    notes = Notes()
    with pytest.raises(OSError, match="no data"):
        fit(Failing(), notes)
    assert notes.told[-1] == ("failed",)


def test_console_logger():
    """A line for the hyperparameters and one for each set of metrics, with four digits."""
    stream = io.StringIO()
    logger = ConsoleLogger(stream, prefix="a")
    logger.log_hyperparams({"lr": 0.1, "net": {"depth": 3}})
    logger.log_metrics({"loss": 0.123456, "epoch": 2}, 50)
    logger.log_metrics({"loss": 123456.0}, 51)
    assert stream.getvalue().splitlines() == [
        "hyperparameters  lr=0.1  net/depth=3",
        "step 50  epoch 2  a-loss 0.1235",
        "step 51  a-loss 1.235e+05",
    ]
    assert isinstance(pickle.loads(pickle.dumps(logger)), ConsoleLogger)


def test_console_logger_of_a_fit(capsys):
    """In a fit it writes to standard error."""
    fit(Scored(), ConsoleLogger())
    assert capsys.readouterr().err.startswith("step 2  epoch 0  loss ")


def test_dummy_logger_swallows_everything():
    """Whatever is done with a dummy's experiment has no effect and no error."""
    experiment = DummyLogger().experiment
    assert isinstance(experiment, Nothing)
    experiment.add_scalar("x", 1)
    experiment["run/x"].append(3)
    experiment.config["lr"] = 2
    with experiment.span("x") as span:
        span.end()
    assert isinstance(pickle.loads(pickle.dumps(DummyLogger())), DummyLogger)


def test_small_helpers():
    """Nested hyperparameters are joined by slashes, and a prefix goes before each name."""
    assert flattened({"a": {"b": {"c": 1}, "d": [1]}, "e": None}) == {"a/b/c": 1, "a/d": "[1]", "e": "None"}
    assert prefixed("p", {"x": 1}) == {"p-x": 1}
    assert prefixed("", {"x": 1}) == {"x": 1}


def test_looking_at_loggers_needs_no_torch(tmp_path):
    """The package of loggers imports no torch, so that looking at old results is quick."""
    import subprocess
    import sys

    code = "import core.loggers, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
