"""Save checkpoints while training, and keep the best."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from core.arguments import choice, duration, flag, whole
from core.callbacks.base import Callback
from core.callbacks.filenames import fill_template, free_name
from core.callbacks.kept_files import KeptFiles
from core.callbacks.moments import link_file, looks_at_epoch_end, save_after_failure, say, when_written
from core.errors import InvalidArgument

if TYPE_CHECKING:
    from core.trainer import Trainer


class Decision(NamedTuple):
    """What rank 0 decided for all: where to save now ("" for nowhere), the score, and where the last one goes."""

    path: str = ""
    score: float | None = None
    last: str = ""
    error: str = ""


class ModelCheckpoint(Callback):
    """Save at the end of epochs, every so many steps or every so often; rank 0 decides for all ranks.

    Args:
        dirpath: folder; by default ``checkpoints`` in the logger's folder.
        filename: with values in braces, such as ``"{epoch}-{val/loss:.2f}"``; by default ``"{epoch}-{step}"``. A slash
            outside braces makes a folder.
        monitor: the metric that decides which are best; None keeps the newest.
        verbose: say on standard error what is saved.
        save_last: also keep ``last.ckpt``, as new as the newest; ``"link"`` makes it a link to the newest that is kept.
        save_top_k: how many to keep; -1 all, 0 none.
        save_on_exception: save when the run is broken off, too; only where one rank runs the loop (see
            :func:`core.callbacks.moments.save_after_failure`).
        save_weights_only: leave out what only resuming needs.
        mode: ``"min"`` or ``"max"``.
        auto_insert_metric_name: write ``epoch=3`` for ``{epoch}``, not ``3``.
        every_n_train_steps: save every n optimizer steps; 0 or None not.
        train_time_interval: save at the first step after so much time.
        every_n_epochs: save at the end of every n-th epoch, which is the default with 1; 0 not.
        save_on_train_epoch_end: True saves at the end of training epochs, False when validation is over; None finds
            out which of them is the end of an epoch.
        enable_version_counter: write ``name-v1.ckpt`` where ``name.ckpt`` is there already; False writes over it.

    Raises:
        InvalidArgument: for a value outside its range, or for two moments to save at.
    """

    CHECKPOINT_JOIN_CHAR: ClassVar[str] = "-"
    CHECKPOINT_EQUALS_CHAR: ClassVar[str] = "="
    CHECKPOINT_NAME_LAST: ClassVar[str] = "last"
    FILE_EXTENSION: ClassVar[str] = ".ckpt"
    STARTING_VERSION: ClassVar[int] = 1

    after_module = True

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        verbose: bool = False,
        save_last: bool | Literal["link"] | None = None,
        save_top_k: int = 1,
        save_on_exception: bool = False,
        save_weights_only: bool = False,
        mode: str = "min",
        auto_insert_metric_name: bool = True,
        every_n_train_steps: int | None = None,
        train_time_interval: timedelta | str | Mapping[str, int] | None = None,
        every_n_epochs: int | None = None,
        save_on_train_epoch_end: bool | None = None,
        enable_version_counter: bool = True,
    ) -> None:
        self.dirpath = None if dirpath is None else os.path.expanduser(os.fspath(dirpath))
        self.filename = filename
        self.monitor = monitor
        self.verbose = flag("verbose", verbose)
        self.save_last: bool | str = "link" if save_last == "link" else flag("save_last", save_last or False)
        self.save_top_k = whole("save_top_k", save_top_k, least=-1)
        self.save_on_exception = flag("save_on_exception", save_on_exception)
        self.save_weights_only = flag("save_weights_only", save_weights_only)
        self.mode = choice("mode", mode, ("min", "max"))
        self.auto_insert_metric_name = flag("auto_insert_metric_name", auto_insert_metric_name)
        self._every_n_train_steps = whole("every_n_train_steps", every_n_train_steps or 0, least=0)
        self._train_time_interval = duration("train_time_interval", train_time_interval)
        by_epoch = not self._every_n_train_steps and self._train_time_interval is None
        every_n_epochs = int(by_epoch) if every_n_epochs is None else every_n_epochs
        self._every_n_epochs = whole("every_n_epochs", every_n_epochs, least=0)
        self.save_on_train_epoch_end = save_on_train_epoch_end
        self.enable_version_counter = flag("enable_version_counter", enable_version_counter)
        self._refuse_two_moments()
        self.kept = KeptFiles(self.save_top_k, self.mode, monitor is not None)
        self.current_score: Tensor | None = None
        self.last_model_path = ""
        self._fitting = self._waiting = False
        self._saved_step = self._seen_step = -1
        self._saved_at = 0.0

    def _refuse_two_moments(self) -> None:
        moments = {
            "every_n_train_steps": self._every_n_train_steps,
            "train_time_interval": self._train_time_interval,
            "every_n_epochs": self._every_n_epochs,
        }
        given = [f"{name}={value}" for name, value in moments.items() if value]
        if len(given) > 1:
            raise InvalidArgument(f"{' and '.join(given)} are two moments to save at: give one of them")

    # ------------------------------------------------------------------ what people read

    @property
    def best_k_models(self) -> dict[str, Tensor | None]:
        """Score by path of the files that are kept, oldest first; None without a monitor."""
        return {path: _tensor(score) for path, score in self.kept.scores.items()}

    @property
    def best_model_path(self) -> str:
        """The best file that is kept, the newest without a monitor; "" before the first."""
        return self.kept.best

    @property
    def best_model_score(self) -> Tensor | None:
        """The score of :attr:`best_model_path`."""
        return _tensor(self.kept[self.kept.best])

    @property
    def kth_best_model_path(self) -> str:
        """The file that is given up next, once all places are taken; "" before."""
        return self.kept.worst if len(self.kept.scores) == self.save_top_k else ""

    @property
    def kth_value(self) -> Tensor | None:
        """The score that a new file has to beat, once all places are taken."""
        return _tensor(self.kept[self.kth_best_model_path])

    @property
    def state_key(self) -> str:
        moment = self._every_n_train_steps, self._every_n_epochs, self._train_time_interval
        return f"{type(self).__qualname__}[{self.monitor},{self.mode},{','.join(map(str, moment))}]"

    def state_dict(self) -> dict[str, Any]:
        return {
            "monitor": self.monitor,
            "dirpath": self.dirpath,
            "scores": dict(self.kept.scores),
            "best_model_path": self.best_model_path,
            "last_model_path": self.last_model_path,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the files of the run that is resumed; where they lie in another folder they stay as they are."""
        before, here = state_dict.get("dirpath"), self.dirpath
        if before is None or here is None or os.path.abspath(before) == os.path.abspath(here):
            self.kept.scores = dict(state_dict["scores"])
            self.last_model_path = state_dict["last_model_path"]

    # ------------------------------------------------------------------ moments

    def setup(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        if stage == "fit" and self.dirpath is None:
            folder = (trainer.log_dir or trainer.default_root_dir) if trainer.is_global_zero else ""
            self.dirpath = os.path.join(trainer.broadcast(folder), "checkpoints")

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        # a step is saved when it has ended, not at a resumed run's first batch
        self._saved_step = self._seen_step = trainer.global_step
        self._saved_at = time.monotonic()
        self._fitting, self._waiting = True, False
        there = trainer.broadcast([path for path in self.kept.scores if os.path.exists(path)])
        self.kept.scores = {path: score for path, score in self.kept.scores.items() if path in there}

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        every, interval, step = self._every_n_train_steps, self._train_time_interval, trainer.global_step
        if not (every or interval) or step == self._seen_step:
            return
        self._seen_step = step
        if not (step % every == 0 if every else self._time_is_up(trainer)):
            return
        if self._validation_decides(trainer):
            self._waiting = True
        else:
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, module: nn.Module) -> None:
        if self._fitting and (self._waiting or not looks_at_epoch_end(trainer, self.save_on_train_epoch_end)):
            self._save_for_epoch(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if looks_at_epoch_end(trainer, self.save_on_train_epoch_end):
            self._save_for_epoch(trainer)

    def on_train_end(self, trainer: Trainer, module: nn.Module) -> None:
        self._fitting = False

    def on_exception(self, trainer: Trainer, module: nn.Module, exception: BaseException) -> None:
        fitting, self._fitting = self._fitting, False
        if fitting and self.save_on_exception and self._saved_step != trainer.global_step and self.dirpath:
            path = save_after_failure(trainer, lambda: self._path(trainer, self.filename), self.save_weights_only)
            self.last_model_path = path or self.last_model_path

    def _time_is_up(self, trainer: Trainer) -> bool:
        assert self._train_time_interval is not None, "asked only where there is an interval"
        up = time.monotonic() - self._saved_at >= self._train_time_interval.total_seconds()
        return up if trainer.world_size == 1 else bool(trainer.broadcast(up))

    def _validation_decides(self, trainer: Trainer) -> bool:
        """Tell whether the score of these weights is only known when the validation to come is over."""
        if self.monitor is None or not trainer.num_val_batches or trainer.results is None:
            return False
        if self.monitor in trainer.results.callback_metrics():
            return False
        if self.monitor not in trainer.callback_metrics:
            return True
        return trainer._run is not None and trainer._run.loop is not None and trainer._run.loop.validates_next()

    def _save_for_epoch(self, trainer: Trainer) -> None:
        every = self._every_n_epochs
        due = self._waiting or (every > 0 and (trainer.current_epoch + 1) % every == 0)
        if due or self.save_last:
            self._save(trainer, top=due)

    # ------------------------------------------------------------------ saving

    def _save(self, trainer: Trainer, top: bool = True) -> None:
        if trainer.global_step == self._saved_step:
            return
        self._saved_step, self._saved_at, self._waiting = trainer.global_step, time.monotonic(), False
        path, score, last, error = trainer.broadcast(self._decide(trainer, top) if trainer.is_global_zero else None)
        if error:
            raise InvalidArgument(error)
        if top:
            self.current_score = _tensor(score)
        # what the files say about themselves is what is true when they are there
        gone = self.kept.add(path, score) if path else []
        before, self.last_model_path = self.last_model_path, last or path or self.last_model_path
        if path:
            trainer.save_checkpoint(path, self.save_weights_only)
            if self.verbose:
                say(trainer, f"epoch {trainer.current_epoch}, step {trainer.global_step}: saved {path}")
        if last and self.save_last == "link" and path:
            if trainer.is_global_zero:
                when_written(trainer, lambda: link_file(path, last))
        elif last:
            trainer.save_checkpoint(last, self.save_weights_only)
        if last and before not in (last, "") and before not in self.kept.scores:
            gone.append(before)
        for each in gone:
            self._remove(trainer, each, path, last)
        self._tell_loggers(trainer)

    def _decide(self, trainer: Trainer, top: bool) -> Decision:
        score, path, last = None, "", ""
        metrics = trainer.callback_metrics
        if top and self.monitor is not None:
            if self.monitor not in metrics:
                known = ", ".join(sorted(metrics)) or "none"
                error = f"ModelCheckpoint monitors {self.monitor!r}, which was not logged; logged: {known}"
                return Decision(error=error)
            score = float(metrics[self.monitor])
        if top and self.kept.wants(score):
            gives_way = self.kept.next_to_go
            path = self._path(trainer, self.filename, own="" if self._is_resumed(trainer, gives_way) else gives_way)
        links_to_nothing = self.save_last == "link" and not path and self.save_top_k != 0
        if self.save_last and not links_to_nothing:
            last = self._path(trainer, self.CHECKPOINT_NAME_LAST, own=self.last_model_path)
        return Decision(path, score, last)

    def _path(self, trainer: Trainer, template: str | None, own: str = "") -> str:
        """Return the path for ``template``; one that is taken gets a number, unless it is taken by ``own``."""
        values: dict[str, Any] = {name: float(value) for name, value in trainer.callback_metrics.items()}
        values.update(epoch=trainer.current_epoch, step=trainer.global_step)
        unknown = self._fill(values, template)[1]
        if unknown:
            known = ", ".join(sorted(values))
            trainer.warn(f"filename {template!r} names {', '.join(unknown)}, not known so far; known: {known}")

        def taken(path: str) -> bool:
            return self.enable_version_counter and path != own and (path in self.kept.scores or os.path.lexists(path))

        return free_name(
            lambda number: self.format_checkpoint_name(values, template, number), taken, self.STARTING_VERSION
        )

    def _fill(self, values: Mapping[str, Any], template: str | None) -> tuple[str, list[str]]:
        template = template or f"{{epoch}}{self.CHECKPOINT_JOIN_CHAR}{{step}}"
        insert, equals = self.auto_insert_metric_name, self.CHECKPOINT_EQUALS_CHAR
        return fill_template(template, values, insert_names=insert, equals=equals)

    def format_checkpoint_name(
        self, metrics: Mapping[str, Any], filename: str | None = None, ver: int | None = None
    ) -> str:
        """Return the path for ``filename``, by default the callback's own, with ``metrics`` filled in."""
        name = self._fill(metrics, filename or self.filename)[0]
        if ver is not None:
            name = f"{name}{self.CHECKPOINT_JOIN_CHAR}v{ver}"
        return os.path.join(self.dirpath or "", name + self.FILE_EXTENSION)

    def _remove(self, trainer: Trainer, path: str, *still_used: str) -> None:
        """Remove a file of this callback; the one that the run was resumed from is the user's to remove."""
        folder = os.path.abspath(self.dirpath or "")
        if (
            path not in still_used
            and not self._is_resumed(trainer, path)
            and os.path.abspath(path).startswith(folder + os.sep)
        ):
            trainer.remove_checkpoint(path)

    def _is_resumed(self, trainer: Trainer, path: str) -> bool:
        resumed = trainer.ckpt_path
        return bool(path) and resumed is not None and os.path.abspath(resumed) == os.path.abspath(path)

    def _tell_loggers(self, trainer: Trainer) -> None:
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                tell = getattr(logger, "after_save_checkpoint", None)
                if callable(tell):
                    when_written(trainer, lambda tell=tell: tell(self))  # type: ignore[misc]  # bound now


def _tensor(score: float | None) -> Tensor | None:
    return None if score is None else torch.tensor(score)
