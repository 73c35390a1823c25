"""What prediction writers get and write."""

import pytest
import torch
from support.nets import Net, loader, quiet_trainer
from torch.utils.data import DataLoader

from core.callbacks import BasePredictionWriter, PredictionWriter
from core.errors import InvalidArgument


class Notes(BasePredictionWriter):
    """Keeps what it is given."""

    def __init__(self, interval):
        super().__init__(interval)
        self.batches, self.epochs = [], []

    def write_on_batch_end(self, trainer, module, prediction, batch_indices, batch, batch_idx, dataloader_idx):
        self.batches.append((dataloader_idx, batch_idx, batch_indices, prediction.shape[0], batch.shape[0]))

    def write_on_epoch_end(self, trainer, module, predictions, batch_indices):
        self.epochs.append(([len(each) for each in predictions], batch_indices))


def predict(writer, loaders, **settings):
    trainer = quiet_trainer(callbacks=[writer], **settings)
    return trainer.predict(Net(), loaders, return_predictions=False)


@pytest.mark.parametrize(
    ("interval", "batches", "epochs"),
    [("batch", 2, 0), ("epoch", 0, 1), ("batch_and_epoch", 2, 1)],
)
def test_moments(interval, batches, epochs):
    """It is called for each batch, at the end, or both, as the interval says; nothing is returned."""
    writer = Notes(interval)
    assert predict(writer, loader(2)) is None
    assert (len(writer.batches), len(writer.epochs)) == (batches, epochs)


def test_indices_of_several_loaders():
    """Each batch comes with the places of its samples; where the order is drawn at random it comes without."""
    writer = Notes("batch_and_epoch")
    predict(writer, [loader(2), loader(1, size=3), loader(1, shuffle=True)])
    assert writer.batches == [
        *[(0, 0, [0, 1], 2, 2), (0, 1, [2, 3], 2, 2)],
        *[(1, 0, [0, 1, 2], 3, 3), (2, 0, None, 2, 2)],
    ]
    assert writer.epochs == [([2, 1, 1], [[[0, 1], [2, 3]], [[0, 1, 2]], [None]])]


def test_limit_ends_the_indices_too():
    """With limit_predict_batches the indices are those of the batches that were predicted."""
    writer = Notes("batch")
    predict(writer, loader(5), limit_predict_batches=2)
    assert [indices for _, _, indices, _, _ in writer.batches] == [[0, 1], [2, 3]]


def test_iterable_data_has_no_indices():
    """Batches that are not drawn from places come without indices."""
    writer = Notes("batch")
    predict(writer, [torch.ones(2, 4)])
    assert writer.batches[0][2] is None


def test_files(tmp_path):
    """PredictionWriter leaves a file per batch and one at the end that torch reads back safely."""
    predict(PredictionWriter(tmp_path, "batch_and_epoch"), DataLoader(torch.ones(3, 4), batch_size=2))
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.pt"))
    assert names == [*(f"loader_0/rank_0_batch_{n}.pt" for n in (0, 1)), "predictions_rank_0.pt"]
    batch = torch.load(tmp_path / "loader_0/rank_0_batch_1.pt", weights_only=True)
    assert (batch["predictions"].shape, batch["indices"]) == ((1, 1), [2])
    whole = torch.load(tmp_path / "predictions_rank_0.pt", weights_only=True)
    assert ([len(each) for each in whole["predictions"]], whole["indices"]) == ([2], [[[0, 1], [2]]])


def test_refused_interval():
    """An interval that is none is refused at once."""
    with pytest.raises(InvalidArgument):
        Notes("step")
