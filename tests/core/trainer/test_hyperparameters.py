"""Hyperparameters: kept from __init__, in checkpoints, and used to make the module again."""

import argparse
import dataclasses
import enum
import pathlib

import numpy
import pytest
import torch
from support.nets import Net, loader, quiet_trainer

from core.errors import CheckpointError


class Colour(enum.Enum):
    """A choice."""

    RED = "red"


@dataclasses.dataclass
class Shape:
    """Some settings."""

    depth: int = 2


class Kept(Net):
    """Keeps all its arguments."""

    def __init__(self, width, rate=0.1, *, path=None, colour=None, shape=None, number=None, thing=None):
        super().__init__(width)
        self.save_hyperparameters()


class Deeper(Kept):
    """Adds an argument of its own."""

    def __init__(self, extra, **rest):
        super().__init__(**rest)
        self.extra = extra


def test_arguments_are_found_through_subclasses():
    """save_hyperparameters in a base class keeps the arguments of the subclass too, as attributes and entries."""
    module = Deeper(extra=1, width=3)
    assert dict(module.hparams)["extra"] == 1
    assert module.hparams.width == 3
    assert module.hparams["rate"] == 0.1


def test_ignore_and_names_choose():
    """Names choose what is kept and ignore leaves out."""

    class Chosen(Net):
        def __init__(self, a, b, c):
            super().__init__()
            self.save_hyperparameters(ignore="b")

    assert dict(Chosen(1, 2, 3).hparams) == {"a": 1, "c": 3}


def save(module, path):
    trainer = quiet_trainer(limit_train_batches=1)
    trainer.fit(module, loader())
    trainer.save_checkpoint(path)


def test_a_checkpoint_makes_the_module_again(tmp_path):
    """load_from_checkpoint builds the module from the file's hyperparameters and loads its weights."""
    module = Kept(4, rate=0.3)
    save(module, tmp_path / "a.ckpt")
    again = Kept.load_from_checkpoint(tmp_path / "a.ckpt", rate=0.5)
    assert again.hparams.rate == 0.5
    torch.testing.assert_close(again.layer.weight, module.layer.weight)


@pytest.mark.filterwarnings("ignore:hyperparameter")
def test_hyperparameters_are_saved_in_plain_types(tmp_path):
    """Paths, enums, dataclasses and NumPy numbers load in safe mode, in their plain form."""
    values = {"path": pathlib.Path("x"), "colour": Colour.RED, "shape": Shape(), "number": numpy.float32(0.5)}
    save(Kept(4, **values), tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)["hyper_parameters"]
    assert saved["path"] == "x"
    assert saved["colour"] == "red"
    assert saved["shape"] == {"depth": 2}
    assert saved["number"] == 0.5


def test_what_has_no_plain_form_is_left_out_with_a_warning(tmp_path):
    """A hyperparameter that cannot be written plainly is left out, and a warning names it and its type."""
    with pytest.warns(UserWarning, match=r"thing \(object\) is left out"):
        save(Kept(4, thing=object()), tmp_path / "a.ckpt")
    assert "thing" not in torch.load(tmp_path / "a.ckpt", weights_only=True)["hyper_parameters"]


def test_a_missing_argument_is_named(tmp_path):
    """A file without a hyperparameter that __init__ needs is refused with the argument's name and what to do."""
    save(Net(), tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match="no hyperparameter width") as refused:
        Kept.load_from_checkpoint(tmp_path / "a.ckpt")
    assert "save_hyperparameters" in str(refused.value)
    Kept.load_from_checkpoint(tmp_path / "a.ckpt", width=4)


class Configured(Net):
    """Takes all its settings in one argument."""

    def __init__(self, settings, extra=1):
        super().__init__(settings.width)
        self.extra = extra
        self.save_hyperparameters(settings, ignore="secret")


def test_settings_in_one_argument(tmp_path):
    """What was kept of a Namespace makes the module again, as the one argument that held it."""
    module = Configured(argparse.Namespace(width=3, rate=0.5, secret="word"))
    assert dict(module.hparams) == {"width": 3, "rate": 0.5}
    trainer = quiet_trainer()
    trainer.fit(module, loader(2, width=3))
    trainer.save_checkpoint(tmp_path / "settings.ckpt")
    again = Configured.load_from_checkpoint(tmp_path / "settings.ckpt", extra=7)
    assert (again.hparams.rate, again.extra) == (0.5, 7)
    torch.testing.assert_close(again.state_dict(), module.state_dict())


def test_settings_in_one_argument_of_a_lightning_module(tmp_path):
    """A checkpoint that Lightning wrote of such a module makes one of ours."""
    pl = pytest.importorskip("lightning.pytorch", reason="the peer is not installed")

    class Peer(pl.LightningModule):
        def __init__(self, settings):
            super().__init__()
            self.save_hyperparameters(settings)
            self.layer = torch.nn.Linear(settings["width"], 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-4)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_epochs=1, default_root_dir=tmp_path, enable_checkpointing=False, **quiet)
    trainer.fit(Peer({"width": 3, "rate": 0.5}), loader(2, width=3))
    trainer.save_checkpoint(tmp_path / "theirs.ckpt")
    again = Configured.load_from_checkpoint(tmp_path / "theirs.ckpt")
    assert dict(again.hparams) == {"width": 3, "rate": 0.5}


class MadeLate(Net):
    """A net whose layer is made by ``configure_model``."""

    def __init__(self):
        super().__init__()
        self.layer = None

    def configure_model(self):
        if self.layer is None:
            self.layer = torch.nn.Linear(4, 3)


def test_parts_that_configure_model_makes_are_loaded(tmp_path):
    """load_from_checkpoint calls configure_model before it loads weights, as a run does."""
    module, trainer = MadeLate(), quiet_trainer()
    trainer.fit(module, loader(1))
    trainer.save_checkpoint(tmp_path / "late.ckpt")
    again = MadeLate.load_from_checkpoint(tmp_path / "late.ckpt")
    torch.testing.assert_close(dict(again.state_dict()), dict(module.state_dict()), rtol=0, atol=0)
