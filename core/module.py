"""The class that people write: an ``nn.Module`` with steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from core.errors import InterlockError
from core.hyperparameters import HyperparametersMixin
from core.loops.manual import ManualOptimization
from core.metrics.recording import record
from core.module_hooks import ModuleHooks

if TYPE_CHECKING:
    from typing_extensions import Self

    from core.loggers import Logger
    from core.trainer import Trainer


class Module(ModuleHooks, HyperparametersMixin, nn.Module):
    """An ``nn.Module`` that the Trainer can run.

    Write ``training_step(batch, batch_idx)`` and ``configure_optimizers()``; add ``validation_step`` and any
    hook of the same name as a :class:`~core.callbacks.Callback` hook, without the first two arguments. Any
    ``nn.Module`` with those methods is accepted too; this class adds ``log`` and the look at the run.
    """

    _trainer: Trainer | None = None
    automatic_optimization = True
    """False: ``training_step`` runs backward and the optimizers itself."""
    strict_loading = True
    # torch.jit looks at every property, and these are there during runs only
    __jit_unused_properties__ = ("trainer", "logger", "loggers", "current_epoch", "global_step", "global_rank")

    @property
    def trainer(self) -> Trainer:
        """The Trainer that runs this module.

        Raises:
            InterlockError: outside a run.
        """
        if self._trainer is None:
            raise InterlockError(f"{type(self).__name__} is not attached to a Trainer: it is only inside a run")
        return self._trainer

    @property
    def device(self) -> torch.device:
        """The device of the first parameter or buffer; host memory when there is none."""
        for tensor in (*self.parameters(), *self.buffers()):
            return tensor.device
        return torch.empty(0).device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first floating-point parameter or buffer."""
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.is_floating_point():
                return tensor.dtype
        return torch.get_default_dtype()

    @property
    def current_epoch(self) -> int:
        """The running epoch, from 0."""
        return self._trainer.current_epoch if self._trainer else 0

    @property
    def global_step(self) -> int:
        """The number of optimizer steps so far."""
        return self._trainer.global_step if self._trainer else 0

    @property
    def global_rank(self) -> int:
        """This process's number among all processes of the run."""
        return self._trainer.global_rank if self._trainer else 0

    @property
    def local_rank(self) -> int:
        """This process's number on its node."""
        return self._trainer.local_rank if self._trainer else 0

    @property
    def logger(self) -> Logger | None:
        """The first logger of the run."""
        return self._trainer.logger if self._trainer else None

    @property
    def loggers(self) -> list[Logger]:
        """The loggers of the run."""
        return self._trainer.loggers if self._trainer else []

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Return the module's forward of ``batch``; override it for anything else."""
        return self(batch)

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool = True,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[..., Any] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log one number.

        Args:
            name: under which it appears; both step and epoch values wanted: ``name_step`` and ``name_epoch``.
            value: a number, a tensor of one element on any device, or a metric object with ``compute`` and ``reset``;
                a tensor is detached, and not read before it is shown.
            prog_bar: show it in the progress bar.
            logger: hand it to the loggers.
            on_step: keep the value of each step; by default in training only.
            on_epoch: keep the value over the epoch; by default in evaluation only.
            reduce_fx: over the epoch: ``"mean"`` (weighted by batch size), ``"sum"``, ``"min"`` or ``"max"``.
            enable_graph, sync_dist_group, metric_attribute: accepted and without effect here.
            sync_dist: bring it together across ranks; every rank must log it.
            add_dataloader_idx: with several loaders, make the loader's number part of the name.
            batch_size: weight in the mean; by default the first dimension of the batch's first tensor.
            rank_zero_only: log on rank 0 only.

        Raises:
            InterlockError: outside a run.
        """
        trainer = self._trainer
        if trainer is None or (results := trainer.results) is None:
            raise InterlockError(f"log({name!r}) was called outside a run")
        if rank_zero_only and trainer.global_rank != 0:
            return
        entry = results.kept.get(name)
        if entry is not None and type(value) is Tensor and record() is None:
            entry.value = value.data  # `detach()` does the same and takes longer; steps may log a hundred values
            return
        results.log(
            name, value, on_step, on_epoch, prog_bar, logger, reduce_fx, sync_dist, batch_size, add_dataloader_idx
        )

    def log_dict(
        self,
        dictionary: Mapping[str, Any],
        prog_bar: bool = False,
        logger: bool = True,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[..., Any] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log several numbers, each as :meth:`log` does with these arguments."""
        for name, value in dictionary.items():
            self.log(
                name,
                value,
                prog_bar,
                logger,
                on_step,
                on_epoch,
                reduce_fx,
                sync_dist=sync_dist,
                add_dataloader_idx=add_dataloader_idx,
                batch_size=batch_size,
                rank_zero_only=rank_zero_only,
            )

    def print(self, *values: object, **how: Any) -> None:
        """Print on rank 0 only."""
        if self.global_rank == 0:
            print(*values, **how)

    def all_gather(self, data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Return the tensors of every rank, stacked along a new first dimension; with one rank ``data`` as it is.

        Args:
            data: a tensor or a number, or a collection of them, of the same shapes on every rank.
            group: None, for all ranks.
            sync_grads: let gradients flow back to the rank that each part came from.
        """
        from core.metrics.gathering import gather_tensors

        if group is not None:
            raise InterlockError("all_gather brings together what all ranks have; it takes no group")
        run = self.trainer._run
        return data if run is None else gather_tensors(run, data, sync_grads)

    def freeze(self) -> None:
        """Take ``requires_grad`` from all parameters and go to eval mode."""
        self.requires_grad_(False).eval()

    def unfreeze(self) -> None:
        """Give all parameters ``requires_grad`` and go to training mode."""
        self.requires_grad_(True).train()

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike[str],
        map_location: Any = None,
        strict: bool | None = None,
        weights_only: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Make a module with the hyperparameters of a checkpoint and load its weights.

        Args:
            checkpoint_path: ours, or one of a LightningModule.
            map_location: where the module goes; it stays in host memory by default.
            strict: whether keys must match; by default the class's ``strict_loading``.
            weights_only: False also reads types that run code when they are loaded; only for files you trust.
            kwargs: arguments of ``__init__`` in place of those in the checkpoint.

        Raises:
            CheckpointError: naming the file, when it cannot be read, or the arguments that it lacks.
        """
        from core.checkpoint.foreign import make_module

        module = make_module(cls, os.fspath(checkpoint_path), weights_only, strict, kwargs)
        return module if map_location is None else module.to(map_location)

    # ------------------------------------------------------------------ optimization

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """Return the optimizer, or the list of them; their ``step`` goes through the run's plugins.

        Args:
            use_pl_optimizer: False gives torch's own, whose ``step`` no plugin takes part in.
        """
        handles: list[Any] = list(ManualOptimization.of(self.trainer).handles)
        if not use_pl_optimizer:
            handles = [handle.optimizer for handle in handles]
        return handles[0] if len(handles) == 1 else handles

    def lr_schedulers(self) -> Any:
        """Return the scheduler, the list of them, or None."""
        schedulers = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        return schedulers[0] if len(schedulers) == 1 else schedulers or None

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Differentiate ``loss`` in place of ``loss.backward()``, so that the precision and the strategy take part."""
        ManualOptimization.of(self.trainer).backward(loss, *args, **kwargs)

    def toggle_optimizer(self, optimizer: Any) -> None:
        """Let only the parameters of ``optimizer`` require gradients."""
        ManualOptimization.of(self.trainer).toggle(optimizer)

    def untoggle_optimizer(self, optimizer: Any) -> None:
        """Put back what :meth:`toggle_optimizer` took."""
        ManualOptimization.of(self.trainer).untoggle()

    @contextmanager
    def toggled_optimizer(self, optimizer: Any) -> Iterator[None]:
        """Toggle inside."""
        self.toggle_optimizer(optimizer)
        try:
            yield
        finally:
            self.untoggle_optimizer(optimizer)

    def clip_gradients(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of ``optimizer`` with the Trainer's settings, or these."""
        ManualOptimization.of(self.trainer).clip(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip between unscaling and the step; override it to clip in another way."""
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Step; override it to do something around it, and call ``optimizer.step(closure=optimizer_closure)``."""
        optimizer.step(closure=optimizer_closure)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Set gradients to None; override it to do it in another way."""
        optimizer.zero_grad()

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Step a scheduler; override it for one whose ``step`` takes other arguments."""
        if metric is None:
            scheduler.step()
        else:
            scheduler.step(metric)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Differentiate; override it to do something around it."""
        loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trainer": None}
