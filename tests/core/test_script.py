"""A user's script gets a command line in two lines."""

import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader

from core import DataModule, Module
from core.script import CLI

pytest.importorskip("jsonargparse", reason="the extra cli is not installed")

QUIET = [
    "--trainer.accelerator=cpu",
    "--trainer.logger=false",
    "--trainer.enable_checkpointing=false",
    "--trainer.enable_progress_bar=false",
    "--trainer.enable_model_summary=false",
]


class Net(Module):
    """A layer with a width and a learning rate.

    Args:
        width: outputs of the layer.
        lr: learning rate.
    """

    def __init__(self, width: int = 4, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, width)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).sum()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch).sum())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class Data(DataModule):
    """Random numbers.

    Args:
        batch_size: samples of a batch.
    """

    def __init__(self, batch_size: int = 2) -> None:
        self.save_hyperparameters()

    def train_dataloader(self):
        return DataLoader(torch.ones(8, 4), batch_size=self.hparams.batch_size)

    def val_dataloader(self):
        return self.train_dataloader()


def test_fit_reads_trainer_model_and_data():
    """`fit --trainer.* --model.* --data.*` builds the three with these values and trains."""
    cli = CLI(Net, Data, ["fit", *QUIET, "--trainer.max_epochs=1", "--model.width=7", "--data.batch_size=4"])
    assert cli.model.layer.out_features == 7
    assert cli.trainer.global_step == 2
    assert cli.datamodule.hparams.batch_size == 4


def test_other_commands_run_the_method_of_their_name():
    """`validate` runs validation and leaves metrics on the trainer."""
    cli = CLI(Net, Data, ["validate", *QUIET])
    assert "val_loss" in cli.trainer.callback_metrics


def test_a_printed_config_can_be_read_again(tmp_path, capsys):
    """What --print_config writes, --config reads, to the same values."""
    with pytest.raises(SystemExit) as end:
        CLI(Net, Data, ["fit", *QUIET, "--model.width=5", "--print_config"])
    assert end.value.code == 0
    config = tmp_path / "config.yaml"
    config.write_text(capsys.readouterr().out)
    cli = CLI(Net, Data, ["fit", f"--config={config}", "--trainer.max_epochs=1"])
    assert cli.model.layer.out_features == 5


def test_help_names_the_installed_plugins(capsys):
    """The help of a command lists the strategies that are installed, from the registry."""
    with pytest.raises(SystemExit):
        CLI(Net, Data, ["fit", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "ddp_sharded" in text
    assert "16-mixed" in text


def test_a_wrong_option_ends_with_status_2(tmp_path):
    """An option that does not exist ends the script with status 2 and names the option."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom core import Module\nfrom core.script import CLI\n"
        "class Net(Module):\n    pass\n"
        "if __name__ == '__main__':\n    CLI(Net)\n"
    )
    ended = subprocess.run(
        [sys.executable, script, "fit", "--trainer.max_epohs=1"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert "max_epohs" in ended.stderr


class Wide(Net):
    """A net of another width.

    Args:
        factor: how much wider.
        width: outputs of the layer.
    """

    def __init__(self, factor: int = 2, width: int = 4) -> None:
        super().__init__(factor * width)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--trainer.strategy=ddp_shared", "unknown strategy 'ddp_shared'; did you mean 'ddp_sharded'"),
        ("--trainer.max_epochs=-7", "max_epochs=-7 must be at least -1"),
        ("--trainer.max_epochs=many", "trainer.max_epochs"),
        ("--model.width=wide", "model.width"),
    ],
)
def test_a_wrong_value_ends_with_status_2(capsys, option, words):
    """What jsonargparse refuses and what the Trainer refuses end alike: usage, the reason, status 2, no traceback."""
    with pytest.raises(SystemExit) as end:
        CLI(Net, Data, ["fit", *QUIET, option])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_the_command_line_can_name_the_class(tmp_path):
    """With subclasses=True, options and config files name a subclass of the module, with its arguments."""
    config = tmp_path / "config.yaml"
    config.write_text(f"model:\n  class_path: {__name__}.Wide\n  init_args:\n    factor: 3\n")
    for options in ([f"--config={config}"], [f"--model={__name__}.Wide", "--model.factor=3"]):
        cli = CLI(Net, Data, [*QUIET, *options, f"--data={__name__}.Data"], run=False, subclasses=True)
        assert type(cli.model) is Wide
        assert cli.model.layer.out_features == 12


def test_options_can_follow_from_each_other(tmp_path):
    """A CLI of one's own links the module's argument to the data module's and adds an option; YAML makes callbacks."""

    class Linked(CLI):
        def add_arguments_to_parser(self, parser):
            parser.link_arguments("data.batch_size", "model.width")
            parser.add_argument("--note", default="none")

    config = tmp_path / "config.yaml"
    config.write_text(
        "trainer:\n  callbacks:\n  - class_path: core.callbacks.EarlyStopping\n    init_args: {monitor: val_loss}\n"
    )
    cli = Linked(Net, Data, [*QUIET, f"--config={config}", "--data.batch_size=3", "--note=here"], run=False)
    assert (cli.model.layer.out_features, cli.config.note) == (3, "here")
    assert [callback.monitor for callback in cli.trainer.early_stopping_callbacks] == ["val_loss"]
