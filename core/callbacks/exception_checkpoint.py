"""One checkpoint of where a run was broken off."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torch import nn

from core.callbacks.base import Callback
from core.callbacks.filenames import fill_template
from core.callbacks.moments import save_after_failure

if TYPE_CHECKING:
    from core.trainer import Trainer


class OnExceptionCheckpoint(Callback):
    """Saves when training is broken off by an exception, Ctrl-C included; only where one rank runs the loop.

    Args:
        dirpath: folder.
        filename: may name ``{epoch}`` and ``{step}`` and what was logged.
    """

    FILE_EXTENSION = ".ckpt"

    def __init__(self, dirpath: str | os.PathLike[str], filename: str = "on_exception") -> None:
        self.dirpath, self.filename = os.fspath(dirpath), filename
        self._training = False

    @property
    def state_key(self) -> str:
        return f"{type(self).__qualname__}[{self.dirpath},{self.filename}]"

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._training = True

    def on_train_end(self, trainer: Trainer, module: nn.Module) -> None:
        self._training = False

    def on_exception(self, trainer: Trainer, module: nn.Module, exception: BaseException) -> None:
        training, self._training = self._training, False
        if training:
            save_after_failure(trainer, lambda: self._path(trainer))

    def _path(self, trainer: Trainer) -> str:
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        values.update(epoch=trainer.current_epoch, step=trainer.global_step)
        return os.path.join(self.dirpath, fill_template(self.filename, values)[0] + self.FILE_EXTENSION)
