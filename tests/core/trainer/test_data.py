"""Where data comes from: loaders, data modules, the module itself, several at once."""

import re

import pytest
import torch
from support.nets import Net, loader, quiet_trainer
from torch.utils.data import TensorDataset

from core import CombinedLoader, DataModule, ModelCheckpoint
from core.errors import InterlockError, InvalidArgument, WrongType


class Data(DataModule):
    """Notes what it is asked for."""

    def __init__(self):
        self.calls = []

    def prepare_data(self):
        self.calls.append("prepare_data")

    def setup(self, stage):
        self.calls.append(f"setup {stage}")

    def train_dataloader(self):
        self.calls.append("train")
        return loader(2)

    def val_dataloader(self):
        return [loader(1), loader(2)]

    test_dataloader = predict_dataloader = train_dataloader

    def teardown(self, stage):
        self.calls.append(f"teardown {stage}")

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch + 1000

    def state_dict(self):
        return {"calls": len(self.calls)}


def test_a_data_module_is_asked_in_order():
    """prepare_data comes before setup, loaders after both, teardown last; its transfer hooks change batches."""

    class Sees(Net):
        def training_step(self, batch, batch_idx):
            self.first = batch[0, 0].item()
            return super().training_step(batch, batch_idx)

    data, net = Data(), Sees()
    trainer = quiet_trainer(limit_train_batches=1)
    trainer.fit(net, datamodule=data)
    assert data.calls == ["prepare_data", "setup fit", "train", "teardown fit"]
    assert net.first == 1000
    assert set(trainer.callback_metrics) == {"val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1"}


def test_a_data_module_may_stand_where_loaders_do():
    """fit(module, datamodule) is read as people mean it; giving both loaders and a data module is refused."""
    trainer = quiet_trainer()
    trainer.fit(Net(), Data())
    assert trainer.global_step == 2
    with pytest.raises(InterlockError, match="give one of them"):
        trainer.fit(Net(), loader(), datamodule=Data())


def test_a_module_may_bring_its_own_loaders():
    """train_dataloader and val_dataloader of the module are used when nothing else is given."""

    class Own(Net):
        def train_dataloader(self):
            return loader(3)

        def val_dataloader(self):
            return loader(1)

    trainer = quiet_trainer()
    trainer.fit(Own())
    assert trainer.global_step == 3
    assert "val_loss" in trainer.callback_metrics


def test_validate_gives_the_metrics_of_each_loader():
    """With two loaders the result is a list of two, each with its own numbered name."""
    results = quiet_trainer().validate(Net(), [loader(1), loader(2)], verbose=False)
    assert [list(result) for result in results] == [["val_loss/dataloader_idx_0"], ["val_loss/dataloader_idx_1"]]


def test_predict_returns_what_predict_step_returned():
    """predict gives the module's forward for each batch, under no gradients and in eval mode; nothing if unwanted."""
    net, data = Net(), loader(3)
    predictions = quiet_trainer().predict(net, data)
    torch.testing.assert_close(torch.cat(predictions), net(torch.cat(list(data))).detach())
    assert not predictions[0].requires_grad
    assert quiet_trainer().predict(net, data, return_predictions=False) is None


def test_loaders_are_made_anew_when_asked():
    """reload_dataloaders_every_n_epochs=2 asks for the loader in epochs 0 and 2."""

    class Counts(Net):
        made = 0

        def train_dataloader(self):
            self.made += 1
            return loader(self.made)

    net = Counts()
    trainer = quiet_trainer(max_epochs=4, reload_dataloaders_every_n_epochs=2)
    trainer.fit(net)
    assert trainer.global_step == 1 + 1 + 2 + 2
    assert net.made == 2, "none is made when training is over"


def test_validation_loaders_are_made_anew_too():
    """With reload_dataloaders_every_n_epochs=1 each epoch is validated with a loader of its own; given ones stay."""

    class Counts(Net):
        made = 0

        def val_dataloader(self):
            self.made += 1
            return [loader(self.made), loader(2)]

        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.calls.append((self.current_epoch, dataloader_idx))

    net, settings = Counts(), {"max_epochs": 3, "reload_dataloaders_every_n_epochs": 1, "num_sanity_val_steps": 0}
    quiet_trainer(**settings).fit(net, loader(1))
    first = [epoch for epoch, number in net.calls if epoch != "train" and number == 0]
    assert first == [0, 1, 1, 2, 2, 2]
    assert net.made == 3
    quiet_trainer(**settings).fit(net, loader(1), [loader(1), loader(1)])
    assert net.made == 3


@pytest.mark.parametrize(
    ("mode", "lengths"), [("max_size_cycle", 3), ("min_size", 2), ("max_size", 3), ("sequential", 5)]
)
def test_several_loaders_are_read_together(mode, lengths):
    """A combination of loaders of 2 and 3 batches has the length that its mode says."""
    combined = CombinedLoader({"a": loader(2), "b": loader(3)}, mode)
    assert len(combined) == len(list(combined)) == lengths


def test_a_dict_of_loaders_trains_on_batches_of_all():
    """fit with a dict of loaders gives training_step a dict of batches, as long as the longest loader."""

    class Both(Net):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch["a"] + batch["b"], batch_idx)

    trainer = quiet_trainer()
    trainer.fit(Both(), {"a": loader(2), "b": loader(3)})
    assert trainer.global_step == 3


def test_max_size_gives_none_for_what_is_used_up():
    """In the mode max_size a loader that has ended gives None."""
    batches = list(CombinedLoader([loader(1), loader(2)], "max_size"))
    assert batches[1][0] is None
    assert batches[1][1] is not None


def test_evaluation_without_a_module_takes_that_of_the_last_fit(tmp_path, capsys):
    """test(dataloaders=...) after a fit tests the best checkpoint, says so, and takes another where it is told."""

    class Scored(Net):
        def test_step(self, batch, batch_idx):
            self.log("weight", self.layer.weight.sum())

        def on_train_epoch_end(self):
            self.log("score", float(self.current_epoch))

    saving = ModelCheckpoint(dirpath=tmp_path, monitor="score", mode="min", save_last=True)
    trainer = quiet_trainer(max_epochs=2, enable_checkpointing=True, callbacks=[saving])
    with pytest.raises(InterlockError, match="test was given no module"):
        trainer.test(dataloaders=loader(1))
    net = Scored()
    trainer.fit(net, loader())
    last = net.layer.weight.sum().item()
    best = torch.load(saving.best_model_path, weights_only=True)["state_dict"]["layer.weight"].sum().item()
    assert trainer.test(dataloaders=loader(1), verbose=False) == [{"weight": pytest.approx(best)}]
    assert saving.best_model_path in capsys.readouterr().out
    assert trainer.test(dataloaders=loader(1), ckpt_path="last", verbose=False) == [{"weight": pytest.approx(last)}]
    assert best != pytest.approx(last)
    assert len(trainer.predict(dataloaders=loader(2))) == 2


def test_evaluation_without_a_module_or_checkpoints_takes_the_module_as_it_is():
    """Where a fit saved nothing, validate() without a module runs the trained module itself."""
    trainer, net = quiet_trainer(), Net()
    trainer.fit(net, loader())
    (metrics,) = trainer.validate(dataloaders=loader(1), verbose=False)
    assert metrics["val_loss"] == pytest.approx(net(next(iter(loader(1)))).mean().item())


def test_collections_of_loaders_may_be_nested():
    """A dict of lists of loaders gives batches in that shape, and each of them is known to the run."""

    class Nested(Net):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch["a"][0] + batch["a"][1] + batch["b"], batch_idx)

    trainer = quiet_trainer()
    trainer.fit(Nested(), {"a": [loader(2), loader(3)], "b": loader(4)})
    assert trainer.global_step == 4


def test_one_after_the_other_a_step_gets_batches_alone():
    """A sequential combination trains on the batches of one loader after the other, as one loader would give them."""
    net = Net()
    trainer = quiet_trainer()
    trainer.fit(net, CombinedLoader([loader(2), loader(3)], "sequential"))
    assert net.calls == [("train", index) for index in range(5)]


def test_validation_reads_a_dict_of_loaders_one_after_the_other():
    """A dict of validation loaders gives the metrics of each; a combination of another mode stays one loader."""
    results = quiet_trainer().validate(Net(), {"a": loader(1), "b": loader(2)}, verbose=False)
    assert [list(result) for result in results] == [["val_loss/dataloader_idx_0"], ["val_loss/dataloader_idx_1"]]

    class Both(Net):
        def validation_step(self, batch, batch_idx):
            super().validation_step(torch.cat(batch), batch_idx)

    net = Both()
    (together,) = quiet_trainer().validate(net, CombinedLoader([loader(1), loader(2)], "max_size_cycle"), verbose=False)
    assert list(together) == ["val_loss"]
    assert net.calls == [("val", 0), ("val", 1)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "must be a DataLoader or another iterable of batches, not int 3"),
        ("train", "not str 'train'"),
        ([loader(), None], "must be a DataLoader or another iterable of batches, not NoneType"),
        (TensorDataset(torch.ones(2, 4)), "not the dataset TensorDataset, whose samples are no batches"),
    ],
    ids=["number", "string", "list with None", "dataset"],
)
def test_what_is_no_loader_is_refused_by_the_name_of_its_argument(given, message):
    """In place of a loader anything that gives no batches is refused before the run, with the argument's name."""
    trainer, net = quiet_trainer(), Net()
    for name, call in {
        "train_dataloaders": lambda: trainer.fit(net, given),
        "val_dataloaders": lambda: trainer.fit(net, loader(), given),
        "dataloaders": lambda: trainer.predict(net, given),
    }.items():
        with pytest.raises(WrongType, match=f"{name} must be") as caught:
            call()
        assert re.search(message, str(caught.value))
    assert net.calls == []


def test_what_a_method_returns_is_held_to_the_same():
    """A train_dataloader method that returns no loader is named."""

    class Own(Net):
        def train_dataloader(self):
            return 3

    with pytest.raises(WrongType, match="what train_dataloader returns must be a DataLoader"):
        quiet_trainer().fit(Own())


def test_training_on_nothing_is_said():
    """A fraction that leaves no batch is refused with the least that would; a loader without batches is warned of."""
    with pytest.raises(InvalidArgument, match=r"limit_train_batches=0\.1 leaves nothing of 4 batches; .* 0\.25"):
        quiet_trainer(limit_train_batches=0.1).fit(Net(), loader())
    with pytest.warns(UserWarning, match="no batches: fit trains nothing"):
        quiet_trainer().fit(Net(), loader(0))


@pytest.mark.parametrize("limits", [{"max_epochs": 3}, {"max_epochs": -1, "max_steps": 100}], ids=["epochs", "steps"])
def test_training_ends_when_a_loader_is_used_up(limits):
    """A generator can be read once: the next epoch has no batch, and training ends there and says so."""
    trainer = quiet_trainer(**limits)
    with pytest.warns(UserWarning, match="a generator, gave no batch in epoch 1, so training ends"):
        trainer.fit(Net(), (batch for batch in loader(4)))
    assert (trainer.global_step, trainer.current_epoch) == (4, 1)


def test_a_data_module_has_to_be_made():
    """The class of a data module in place of one is refused with how to make one, however it is passed."""
    for call in (lambda t: t.fit(Net(), datamodule=Data), lambda t: t.predict(Net(), Data)):
        with pytest.raises(WrongType, match=r"datamodule must be an object, not the class Data; write Data\(\.\.\.\)"):
            call(quiet_trainer())


def test_a_value_logged_under_its_own_name_belongs_to_its_loader():
    """With add_dataloader_idx=False each loader's result has what was logged for it, and what belongs to none."""

    class Named(Net):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.log(("easy", "hard")[dataloader_idx], batch.mean(), add_dataloader_idx=False)

        def on_validation_epoch_end(self):
            self.log("both", 1.0)

    found = quiet_trainer().validate(Named(), [loader(2), loader(1)], verbose=False)
    assert [sorted(each) for each in found] == [["both", "easy"], ["both", "hard"]]


def test_the_number_of_a_loader_ends_the_name():
    """A value wanted per step and epoch is forked before the loader's number, as people monitor it."""

    class Both(Net):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.log("x", batch.mean(), on_step=True, on_epoch=True)

    trainer = quiet_trainer()
    first, second = trainer.validate(Both(), [loader(2), loader(1)], verbose=False)
    assert (list(first), list(second)) == (["x_epoch/dataloader_idx_0"], ["x_epoch/dataloader_idx_1"])
    assert {"x/dataloader_idx_0", "x_epoch/dataloader_idx_0"} <= trainer.callback_metrics.keys()
