"""Arguments and names that people know from elsewhere or from earlier days, and what to write now (torch-free)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from core.errors import InvalidArgument
from core.spellings import nearest

PAST_ARGUMENTS = {
    "amp_backend": 'precision="16-mixed" for torch\'s own, or precision="apex" for NVIDIA apex',
    "amp_level": 'precision=an apex precision configured with its level, such as ApexPrecision(level="O2")',
    "auto_lr_find": "Tuner(trainer).lr_find(module)",
    "auto_scale_batch_size": "Tuner(trainer).scale_batch_size(module)",
    "auto_select_gpus": 'accelerator="cuda", devices=N',
    "automatic_optimization": "automatic_optimization = {value} in the Module",
    "checkpoint_callback": "enable_checkpointing={value}",
    "distributed_backend": "strategy={value}",
    "enable_pl_optimizer": "nothing: it is gone",
    "flush_logs_every_n_steps": "logger=CSVLogger(..., flush_logs_every_n_steps={value})",
    "gpus": 'accelerator="cuda", devices={value}',
    "ipus": "an accelerator plugin for that hardware",
    "log_gpu_memory": "callbacks=[DeviceStatsMonitor()]",
    "move_metrics_to_cpu": "nothing: metrics are read in host memory",
    "multiple_trainloader_mode": "CombinedLoader(loaders, mode)",
    "num_processes": 'accelerator="cpu", devices={value}',
    "prepare_data_per_node": "prepare_data_per_node={value} in the DataModule",
    "process_position": "nothing: it is gone",
    "progress_bar_refresh_rate": "enable_progress_bar=False, or ProgressBar(refresh_every=seconds)",
    "reload_dataloaders_every_epoch": "reload_dataloaders_every_n_epochs=1",
    "replace_sampler_ddp": "use_distributed_sampler={value}",
    "resume_from_checkpoint": "trainer.fit(..., ckpt_path={value})",
    "stochastic_weight_avg": "callbacks=[StochasticWeightAveraging(swa_lrs=...)]",
    "terminate_on_nan": "detect_anomaly=True",
    "tpu_cores": 'accelerator="xla", devices={value}',
    "track_grad_norm": "a callback whose on_before_optimizer_step logs it",
    "truncated_bptt_steps": "a loop over the parts in training_step",
    "weights_save_path": "callbacks=[ModelCheckpoint(dirpath={value})]",
    "weights_summary": "enable_model_summary=True or False",
}
"""What each is written as now; ``{value}`` stands for what was given."""

PAST_HOOKS = {
    "training_epoch_end": "on_train_epoch_end, and keep what the steps gave in an attribute",
    "validation_epoch_end": "on_validation_epoch_end, and keep what the steps gave in an attribute",
    "test_epoch_end": "on_test_epoch_end, and keep what the steps gave in an attribute",
    "training_step_end": "its lines at the end of training_step",
    "validation_step_end": "its lines at the end of validation_step",
    "test_step_end": "its lines at the end of test_step",
    "on_epoch_start": "on_train_epoch_start",
    "on_epoch_end": "on_train_epoch_end",
    "on_batch_start": "on_train_batch_start",
    "on_batch_end": "on_train_batch_end",
    "on_pretrain_routine_start": "on_fit_start",
    "on_pretrain_routine_end": "on_fit_start",
    "tbptt_split_batch": "a loop over the parts in training_step",
}
"""Methods of a module that were hooks once, and what takes their place."""

REFUSED_HOOKS = frozenset({"training_epoch_end", "validation_epoch_end", "test_epoch_end"})
"""Those that a module cannot have left in by oversight: it would come to other results without them."""

PAST_STEP_ARGUMENTS = {
    "optimizer_idx": "automatic_optimization = False, and self.optimizers() in training_step",
    "hiddens": "a loop over the parts in training_step",
    "dataloader_iter": "training_step(batch, batch_idx)",
}
"""Arguments of ``training_step`` that nobody passes, and what takes their place."""

PAST_SIGNATURES = {
    "optimizer_step": "optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure)",
    "optimizer_zero_grad": "optimizer_zero_grad(self, epoch, batch_idx, optimizer)",
    "configure_gradient_clipping": "configure_gradient_clipping(self, optimizer, gradient_clip_val, "
    "gradient_clip_algorithm)",
    "lr_scheduler_step": "lr_scheduler_step(self, scheduler, metric)",
}
"""Methods that took ``optimizer_idx`` once, and what they take now."""


def refuse_past(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Refuse keyword arguments that do not exist, saying for each what to write instead.

    Raises:
        InvalidArgument: naming all of them at once.
    """
    if not given:
        return
    lines = []
    for name, value in given.items():
        if name in PAST_ARGUMENTS:
            lines.append(f"{name}={value!r} is from the past; write {PAST_ARGUMENTS[name].format(value=repr(value))}")
            continue
        close = nearest(name, known)
        hint = f"; did you mean {close[0]}?" if close else ""
        lines.append(f"there is no argument {name!r}{hint}")
    raise InvalidArgument(
        "\n".join(["Trainer got arguments that it does not have", *(f"  - {line}" for line in lines)])
    )
