"""Save checkpoints while training, and keep the best."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from core.arguments import choice, whole
from core.callbacks.base import Callback
from core.errors import InvalidArgument

if TYPE_CHECKING:
    from core.trainer import Trainer

SUFFIX = ".ckpt"


class ModelCheckpoint(Callback):
    """Save at the end of epochs, or every so many steps.

    Args:
        dirpath: folder; by default ``checkpoints`` in the logger's folder.
        filename: with values in braces, such as ``"{epoch}-{val_loss:.2f}"``; by default ``"{epoch}-{step}"``.
        monitor: the metric that decides which are best; None keeps the latest.
        mode: ``"min"`` or ``"max"``.
        save_top_k: how many to keep; -1 all, 0 none.
        save_last: also keep ``last.ckpt``.
        save_weights_only: leave out what only resuming needs.
        every_n_epochs: save at the end of every n-th epoch.
        every_n_train_steps: save every n optimizer steps instead.
    """

    after_module = True

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        mode: str = "min",
        save_top_k: int = 1,
        save_last: bool = False,
        save_weights_only: bool = False,
        every_n_epochs: int | None = None,
        every_n_train_steps: int | None = None,
    ) -> None:
        if every_n_epochs is not None and every_n_train_steps is not None:
            raise InvalidArgument(
                f"every_n_epochs={every_n_epochs} and every_n_train_steps={every_n_train_steps}: give one of them"
            )
        self.dirpath = None if dirpath is None else os.fspath(dirpath)
        self.filename = filename or "{epoch}-{step}"
        self.monitor = monitor
        self.mode = choice("mode", mode, ("min", "max"))
        self.save_top_k = whole("save_top_k", save_top_k, least=-1)
        self.save_last = save_last
        self.save_weights_only = save_weights_only
        self.every_n_train_steps = every_n_train_steps
        self.every_n_epochs = whole("every_n_epochs", 1 if every_n_epochs is None else every_n_epochs, least=1)
        if every_n_train_steps is not None:
            whole("every_n_train_steps", every_n_train_steps, least=1)
        self.best_model_path = ""
        self.best_model_score: float | None = None
        self.last_model_path = ""
        self.saved: dict[str, float | None] = {}
        """Path and score of each checkpoint that is kept, oldest first."""
        self._last_step = -1

    @property
    def state_key(self) -> str:
        return f"{type(self).__qualname__}[{self.monitor},{self.mode},{self.every_n_train_steps},{self.every_n_epochs}]"

    def state_dict(self) -> dict[str, Any]:
        return {
            "best_model_path": self.best_model_path,
            "best_model_score": self.best_model_score,
            "last_model_path": self.last_model_path,
            "saved": dict(self.saved),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._last_step = trainer.global_step  # a step is saved when it has ended, not at a resumed run's first batch

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        every, step = self.every_n_train_steps, trainer.global_step
        if every is not None and step != self._last_step and step % every == 0:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if self.every_n_train_steps is None and (trainer.current_epoch + 1) % self.every_n_epochs == 0:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        self._last_step = trainer.global_step
        path, score = trainer.broadcast(self._decide(trainer))  # one decision for all ranks
        if path:
            trainer.save_checkpoint(path, self.save_weights_only)
            self._keep(trainer, path, score)
        if self.save_last:
            self.last_model_path = str(trainer.broadcast(str(Path(self._folder(trainer), f"last{SUFFIX}"))))
            trainer.save_checkpoint(self.last_model_path, self.save_weights_only)
        elif path:
            self.last_model_path = path

    def _decide(self, trainer: Trainer) -> tuple[str, float | None]:
        """Return where to save now, or "" for not at all, and the score."""
        score = None
        if self.monitor is not None:
            metrics = trainer.callback_metrics
            if self.monitor not in metrics:
                known = ", ".join(sorted(metrics)) or "none"
                raise InvalidArgument(
                    f"ModelCheckpoint monitors {self.monitor!r}, which was not logged; logged: {known}"
                )
            score = float(metrics[self.monitor])
        full = 0 <= self.save_top_k <= len(self.saved)
        if self.save_top_k == 0 or (full and score is not None and not self._better(score, self._worst()[1])):
            return "", score
        return str(Path(self._folder(trainer), self._name(trainer))), score

    def _better(self, score: float, than: float | None) -> bool:
        if than is None or than != than:
            return True
        return score < than if self.mode == "min" else score > than

    def _worst(self) -> tuple[str, float | None]:
        """Return the checkpoint to give up first: the oldest without a monitor, else the worst score."""
        items = list(self.saved.items())
        worst = items[0]
        if self.monitor is not None:
            for item in items[1:]:
                if item[1] is not None and not self._better(item[1], worst[1]):
                    worst = item
        return worst

    def _keep(self, trainer: Trainer, path: str, score: float | None) -> None:
        self.saved.pop(path, None)
        self.saved[path] = score
        if self.save_top_k > 0:
            while len(self.saved) > self.save_top_k:
                gone, _ = self._worst()
                del self.saved[gone]
                if trainer.is_global_zero and gone != path:
                    trainer.remove_checkpoint(gone)
        if self.monitor is None:
            self.best_model_path = path
        else:
            for kept, kept_score in self.saved.items():
                if kept_score is not None and (
                    not self.best_model_path
                    or self.best_model_path not in self.saved
                    or self._better(kept_score, self.best_model_score)
                ):
                    self.best_model_path, self.best_model_score = kept, kept_score

    def _folder(self, trainer: Trainer) -> str:
        return self.dirpath or str(Path(trainer.log_dir or trainer.default_root_dir, "checkpoints"))

    def _name(self, trainer: Trainer) -> str:
        values: dict[str, Any] = {name: float(value) for name, value in trainer.callback_metrics.items()}
        values.update(epoch=trainer.current_epoch, step=trainer.global_step)

        def fill(match: re.Match[str]) -> str:
            name, form = match[1], match[2] or ""
            if name not in values:
                known = ", ".join(sorted(values))
                raise InvalidArgument(f"filename {self.filename!r} names {name!r}, which is not known; known: {known}")
            return f"{name}={format(values[name], form)}"

        return re.sub(r"\{([^}:]+)(?::([^}]*))?\}", fill, self.filename) + SUFFIX
