"""Every argument and every name that the original had means something here, or is refused with what to write now."""

from __future__ import annotations

import inspect
import re

import pytest

from core import Trainer
from core.errors import InvalidArgument, UnknownPlugin
from core.past import PAST_ARGUMENTS
from core.registry import get_registry

LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches")
ARGUMENTS = (
    *("accelerator", "distributed_backend", "gpus", "auto_select_gpus", "num_processes", "num_nodes", "tpu_cores"),
    *("precision", "amp_backend", "amp_level", "plugins", "sync_batchnorm", "replace_sampler_ddp", "deterministic"),
    *("benchmark", "prepare_data_per_node", "logger", "checkpoint_callback", "callbacks", "default_root_dir"),
    *("gradient_clip_val", "process_position", "log_gpu_memory", "progress_bar_refresh_rate", "overfit_batches"),
    *("track_grad_norm", "check_val_every_n_epoch", "fast_dev_run", "accumulate_grad_batches", "max_epochs"),
    *("min_epochs", "max_steps", "min_steps", *LIMITS, "val_check_interval", "flush_logs_every_n_steps"),
    *("log_every_n_steps", "weights_summary", "weights_save_path", "num_sanity_val_steps", "truncated_bptt_steps"),
    *("resume_from_checkpoint", "profiler", "reload_dataloaders_every_epoch", "auto_lr_find", "terminate_on_nan"),
    *("auto_scale_batch_size", "automatic_optimization", "move_metrics_to_cpu", "enable_pl_optimizer"),
    *("multiple_trainloader_mode", "stochastic_weight_avg"),
)
"""The 55 arguments of the original's Trainer."""
OWN = frozenset(inspect.signature(Trainer).parameters)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_argument_of_the_original(name):
    """Each argument is one of the Trainer's, or is refused by name with what to write now."""
    if name in OWN:
        assert name not in PAST_ARGUMENTS
        return
    with pytest.raises(InvalidArgument, match=rf"{name}=2 is from the past; write ."):
        Trainer(**{name: 2})


@pytest.mark.parametrize("name", [name for name, now in PAST_ARGUMENTS.items() if " in the " not in now])
def test_what_to_write_can_be_written(name):
    """Where the replacement is arguments of the Trainer, there are such arguments."""
    outside_brackets = re.sub(r"\([^()]*\)", "", PAST_ARGUMENTS[name])
    for keyword in re.findall(r"(?:^|, )(\w+)=", outside_brackets):
        assert keyword in OWN, keyword


STRATEGIES = ("dp", "ddp", "ddp2", "ddp_spawn", "ddp_sharded", "ddp_sharded_spawn", "rpc_sequential")
REPLACED = {
    "ddp_cpu": 'accelerator="cpu", strategy="ddp"',
    "horovod": 'strategy="ddp"',
    "deepspeed": 'strategy="fsdp"',
    "deepspeed_stage_2": 'strategy="ddp_sharded"',
    "deepspeed_stage_2_offload": 'strategy="ddp_sharded"',
    "deepspeed_stage_3": 'strategy="fsdp"',
    "deepspeed_stage_3_offload": 'strategy="fsdp"',
    "ddp_find_unused_parameters_false": 'strategy="ddp"',
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy_of_the_original(name):
    """A name that works here stands for the plugin of that name; given as an accelerator, it is told where it goes."""
    assert get_registry().find("strategy", name).name == name
    with pytest.raises(UnknownPlugin, match=f"pass it as strategy='{name}'"):
        Trainer(accelerator=name)


@pytest.mark.parametrize("argument", ["strategy", "accelerator"])
@pytest.mark.parametrize("name", REPLACED)
def test_name_that_another_replaces(argument, name):
    """A name that is gone is refused with the exact replacement, also where the original took it."""
    with pytest.raises(UnknownPlugin) as refused:
        Trainer(**{argument: name})
    assert f"hint: {name!r} is from elsewhere; write {REPLACED[name]}" in str(refused.value)
