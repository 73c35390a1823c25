"""What a checkpoint holds, gathered from all ranks and given back to them."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from core.checkpoint.io import to_plain
from core.checkpoint.parts import STATES, is_sharded
from core.checkpoint.read import read_checkpoint
from core.errors import CheckpointError, InterlockError
from core.hyperparameters import simplified
from core.interop import foreign_entries
from core.loops.window import go_on_in_window, gradients_so_far
from core.metrics.gathering import rows_of_ranks

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from core.loops.run import Run
    from core.loops.training import TrainingLoop
    from core.plan import Plan
    from core.trainer import Trainer

FORMAT = 1
WEIGHTS = ("state_dict",)
"""The entries that evaluation reads."""
WHOLE = (*WEIGHTS, "optimizer_states", "loop", "lr_schedulers")
"""The entries that training goes on from."""


def gather(run: Run, loop: TrainingLoop | None, *, weights_only: bool = False) -> dict[str, Any] | None:
    """Collect a checkpoint; every rank calls it, and rank 0 gets it, the others their part where it is sharded."""
    state = run.hooks.gather_state(run.module, [] if weights_only else run.setup.optimizers)
    trainer = run.trainer
    checkpoint: dict[str, Any] = {
        "interlock": {"format": FORMAT, "plan": run.plan.to_dict()},
        "epoch": trainer.current_epoch,
        "global_step": trainer.global_step,
    }
    checkpoint |= foreign_entries(run.module)
    if not weights_only:
        inside = trainer.progress.state_dict()["batch"] > 0
        own = loop.position.state_dict(inside) if loop is not None else None
        per_rank = gather_from_ranks(run, own)
        checkpoint["loop"] = {
            "progress": trainer.progress.state_dict(),
            "positions": per_rank,
            "window": gradients_so_far(run),
        }
        checkpoint["lr_schedulers"] = loop.schedules.state_dict() if loop is not None else None
        checkpoint["plugins"] = {kind: plugin.state_dict() for kind, plugin in run.plugins.items()}
        checkpoint["callbacks"] = _callback_states(trainer.callbacks)
        datamodule = run.data.datamodule
        if datamodule is not None:
            checkpoint["datamodule"] = datamodule.state_dict()
    # the hook below may exchange something between the ranks, so all of them call it, each with what it has
    checkpoint["state_dict"] = _own_tensors(run.module) if state is None else state["state_dict"]
    hyperparameters = getattr(run.module, "hparams", None)
    if hyperparameters:
        checkpoint["hyper_parameters"], changes = simplified(hyperparameters)
        name = getattr(run.module, "_hparams_name", None)
        if name is not None:
            checkpoint["hparams_name"] = name
        for line in changes if run.is_rank_zero else ():
            trainer.warn(f"hyperparameter {line} in checkpoints")
    if not weights_only:
        checkpoint["optimizer_states"] = [] if state is None else state["optimizer_states"]
    run.events.fire("on_save_checkpoint", checkpoint)
    if run.is_rank_zero:
        return checkpoint
    return {name: checkpoint[name] for name in STATES if name in checkpoint} if is_sharded(state) else None


def _own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return what this rank has of the module; where layers live on several ranks, ``state_dict()`` is refused."""
    return {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def _callback_states(callbacks: Sequence[Any]) -> dict[str, Any]:
    """Return the states of callbacks by their keys.

    Raises:
        CheckpointError: when two that have a state share a key, so that one would be lost.
    """
    states: dict[str, Any] = {}
    for callback in callbacks:
        key, state = callback.state_key, callback.state_dict()
        if state and states.get(key):
            raise CheckpointError(
                f"two callbacks have the state_key {key!r}, and a checkpoint would hold one of them\n"
                f"  hint: give {type(callback).__name__} a property state_key that tells its instances apart"
            )
        states[key] = state or states.get(key, state)
    return states


def gather_from_ranks(run: Run, value: Any) -> list[Any]:
    """Return every rank's ``value`` in the order of the ranks; all ranks call it and all get the list."""
    if run.ranks.world_size == 1:
        return [value]
    buffer = io.BytesIO()
    torch.save(to_plain(value, "rank state"), buffer)
    mine = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8).to(run.device)
    lengths = rows_of_ranks(run, torch.tensor(mine.numel(), device=run.device))
    padded = torch.zeros(int(lengths.max()), dtype=torch.int32, device=run.device)
    padded[: mine.numel()] = mine
    rows = rows_of_ranks(run, padded).to(torch.uint8).cpu()
    return [
        torch.load(io.BytesIO(bytes(row[: int(length)].tolist())), weights_only=True)
        for row, length in zip(rows, lengths, strict=True)
    ]


def read(run: Run, path: str) -> dict[str, Any]:
    """Read a checkpoint for a run; a strategy that reads its own parts of a folder finds them in their places there."""
    return read_checkpoint(path, mapped=os.path.isdir(path) and run.plan.provides("checkpoint.sharded"))


def restore_weights(run: Run, checkpoint: dict[str, Any], path: str) -> None:
    """Load the weights only; every rank calls it."""
    need(checkpoint, WEIGHTS, path)
    _restore_state(run, [], checkpoint, path)


def restore(run: Run, loop: TrainingLoop, checkpoint: dict[str, Any], path: str) -> None:
    """Load everything and go on where the checkpoint was written; every rank calls it.

    Raises:
        CheckpointError: when the file holds weights only, is past the end of this run, or the optimizers do not fit.
    """
    need(checkpoint, WHOLE, path)
    trainer = run.trainer
    _refuse_past_the_end(trainer, checkpoint["loop"]["progress"], path)
    run.events.fire("on_load_checkpoint", checkpoint)
    saved, here = len(checkpoint["optimizer_states"]), len(run.setup.optimizers)
    if saved != here:
        raise CheckpointError(f"checkpoint {path!r} holds {saved} optimizers, the module configures {here}")
    _compare_groups(run, checkpoint, path)
    _compare_schedulers(loop, checkpoint, path)
    _restore_state(run, run.setup.optimizers, checkpoint, path)
    if checkpoint["lr_schedulers"] is not None:
        loop.schedules.load_state_dict(checkpoint["lr_schedulers"])
    trainer.progress.load_state_dict(checkpoint["loop"]["progress"])
    positions = checkpoint["loop"]["positions"]
    if len(positions) == run.ranks.world_size and positions[run.ranks.global_rank] is not None:
        loop.position.load_state_dict(positions[run.ranks.global_rank])
        go_on_in_window(run, checkpoint["loop"]["window"])
    elif trainer.progress.batch:
        trainer.warn(
            f"checkpoint {path!r} was written inside an epoch by {len(positions)} ranks and is read by "
            f"{run.ranks.world_size}: the epoch starts again, so its first {trainer.progress.batch} batches repeat"
        )
        trainer.progress.batch = 0
    for kind, plugin in run.plugins.items():
        if same_plugin(checkpoint, run.plan, kind):
            plugin.load_state_dict(checkpoint["plugins"].get(kind, {}))
    if run.data.datamodule is not None and "datamodule" in checkpoint:
        run.data.datamodule.load_state_dict(checkpoint["datamodule"])
    for callback in trainer.callbacks:
        if callback.state_key in checkpoint["callbacks"]:
            callback.load_state_dict(checkpoint["callbacks"][callback.state_key])


def _refuse_past_the_end(trainer: Trainer, progress: dict[str, Any], path: str) -> None:
    """Refuse a run that would be over before it begins; one that ends just where the checkpoint is does nothing."""
    begun = progress["epoch"] + (progress["batch"] > 0)
    for name, reached, end in (
        ("max_epochs", begun, trainer.max_epochs),
        ("max_steps", progress["global_step"], trainer.max_steps),
    ):
        if 0 <= end < reached:
            raise CheckpointError(
                f"checkpoint {path!r} is past the end of this run: {name}={end}, and it has come to {reached}\n"
                f"  hint: raise {name}; fit without ckpt_path begins anew"
            )


def _restore_state(run: Run, optimizers: list[Optimizer], checkpoint: dict[str, Any], path: str) -> None:
    """Give the strategy what it wrote.

    Raises:
        CheckpointError: when it does not fit the module.
    """
    names = ("state_dict", "optimizer_states") if optimizers else ("state_dict",)
    try:
        run.hooks.restore_state(run.module, optimizers, {name: checkpoint[name] for name in names})
    except InterlockError:
        raise
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(f"checkpoint {path!r} does not fit {type(run.module).__name__}: {error}") from error


def _compare_groups(run: Run, checkpoint: dict[str, Any], path: str) -> None:
    for number, (saved, optimizer) in enumerate(zip(checkpoint["optimizer_states"], run.setup.optimizers, strict=True)):
        if not isinstance(saved, dict) or "param_groups" not in saved:
            continue  # a layout of the strategy's own
        then = [len(group["params"]) for group in saved["param_groups"]]
        now = [len(group["params"]) for group in optimizer.param_groups]
        if then != now:
            raise CheckpointError(
                f"checkpoint {path!r} does not fit optimizer {number} ({type(optimizer).__name__}): "
                f"it holds parameter groups of {then} tensors, the module configures groups of {now}"
            )


def _compare_schedulers(loop: TrainingLoop, checkpoint: dict[str, Any], path: str) -> None:
    if checkpoint["lr_schedulers"] is not None:
        then, now = len(checkpoint["lr_schedulers"]["schedulers"]), len(loop.schedules.configs)
        if then != now:
            raise CheckpointError(f"checkpoint {path!r} holds {then} schedulers, the module configures {now}")


def same_plugin(checkpoint: dict[str, Any], plan: Plan, kind: str) -> bool:
    """Tell whether the checkpoint was written by the plugin that the plan has for ``kind``."""
    now: dict[str, Any] = plan.to_dict()[kind]
    then = checkpoint["interlock"]["plan"][kind]
    return bool(now["name"] == then["name"] and now["distribution"] == then["distribution"])


def differences(checkpoint: dict[str, Any], plan: Plan) -> list[str]:
    """Return one line for each plugin that differs from the one the checkpoint was written by."""
    lines = []
    then: dict[str, Any] = checkpoint.get("interlock", {}).get("plan", {})
    for kind, now in plan.to_dict().items():
        before = then.get(kind)
        if not (isinstance(now, dict) and isinstance(before, dict) and "distribution" in now):
            continue
        old, new = (f"{p['name']} [{p['distribution']} {p['version']}]" for p in (before, now))
        if old != new:
            lines.append(f"{kind}: written by {old}, read by {new}")
    return lines


def need(checkpoint: dict[str, Any], keys: tuple[str, ...], path: str) -> None:
    """Refuse a checkpoint without what is wanted of it.

    Raises:
        CheckpointError: naming what is missing.
    """
    missing = [key for key in keys if key not in checkpoint]
    if not missing:
        return
    what, hint = "weights only" if "state_dict" in checkpoint else "no weights", ""
    if "interlock" not in checkpoint and any(str(key).endswith("lightning_version") for key in checkpoint):
        what = "a run of another framework, of which the weights can be used and the rest cannot be gone on with"
        hint = "\n  hint: begin from its weights, with load_from_checkpoint, and leave out ckpt_path"
    elif checkpoint and all(isinstance(value, torch.Tensor) for value in checkpoint.values()):
        what = "the tensors of a state_dict alone"
        hint = "\n  hint: read it with module.load_state_dict(torch.load(path)), and leave out ckpt_path"
    raise CheckpointError(f"checkpoint {path!r} holds {what}; {', '.join(missing)} missing for this use{hint}")
