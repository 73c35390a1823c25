"""The tokens that declarations are written in, with one line of meaning each (torch-free).

A plugin *provides* tokens, *needs* tokens and *excludes* tokens; :mod:`core.rules` holds them against
each other. Third parties add tokens under a prefix of their own, written ``"vendor:token"``; a token
without a prefix must stand in this table.

``asked.X`` is derived: it is present whenever the request or the module needs ``X``, so that a plugin
which cannot live with a feature can exclude the asking for it, although another plugin provides it.
"""

from __future__ import annotations

from types import MappingProxyType

ASKED = "asked."
MODULE_BRINGS = ("module.",)
"""Prefixes of the tokens that are not settled before there is a module."""
REQUEST_BRINGS = ("session.", "launched.", "devices.one")
"""Prefixes of the tokens that are not settled before something is asked for."""

VOCABULARY = MappingProxyType(
    {
        # what an accelerator can do
        "autocast.bfloat16": "torch.autocast to bfloat16 works on the device",
        "autocast.float16": "torch.autocast to float16 works on the device",
        "collective.gloo": "ranks on the device can exchange tensors over gloo",
        "collective.nccl": "ranks on the device can exchange tensors over NCCL",
        "collective.xla": "ranks on the device can exchange tensors over the XLA runtime",
        "cudnn.benchmark": "cuDNN runs layers on the device, and can choose among its kernels by trying them",
        "device.cpu": "tensors live in host memory",
        "device.cuda": "tensors live on a CUDA GPU",
        "device.xla": "tensors live on an XLA device",
        "devices.indexed": "single devices can be picked by index, as in devices=[0, 2]",
        "dtype.bfloat16": "layers run with bfloat16 weights",
        "dtype.float16": "layers run with float16 weights",
        "dtype.float64": "layers run with float64 weights",
        "fork": "a process forked before the device is opened can use it",
        "grad_scaler": "torch.amp.GradScaler works on the device",
        "replicas": "one process can drive several logical devices side by side",
        "rpc": "torch.distributed.rpc works between processes that own the device",
        "spmd": "one process addresses all devices as one sharded array",
        "sync_batchnorm.kernel": "torch.nn.SyncBatchNorm has a kernel for the device",
        # what a precision brings
        "amp.apex": "mixed precision by NVIDIA apex",
        "loss_scaling": "the loss is scaled and a step with non-finite gradients is skipped",
        "weights.half": "the weights themselves are kept in 16 bits",
        # what a strategy can do
        "checkpoint.full": "one file holds the whole state, readable without the strategy",
        "checkpoint.other_world_size": "a checkpoint loads on another number of ranks",
        "checkpoint.sharded": "each rank writes its own part of the state, and reads its own part of it",
        "clip.norm": "gradients are clipped by their global norm",
        "clip.value": "gradients are clipped by value",
        "devices.many": "trains on more than one device",
        "grad_sync.skip": "gradient exchange waits for the last micro-batch of an accumulation window",
        "launch.external": "joins processes that a launcher such as torchrun started",
        "launch.fork": "starts its processes as forks of this one",
        "launch.spawn": "starts its processes with torch.multiprocessing",
        "launch.subprocess": "starts its processes by running the script again",
        "launch.xla": "starts its processes with torch_xla.launch",
        "manual_optimization": "the module may run backward and optimizer steps itself",
        "nodes.many": "trains on more than one node",
        "optimizer.closure": "optimizers that call a closure several times per step, such as LBFGS",
        "optimizer.many": "more than one optimizer",
        "sharded.gradients": "each rank holds the gradients of its own part only",
        "sharded.optimizer": "each rank holds the optimizer state of its own part only",
        "sharded.parameters": "each rank holds its own part of the parameters only",
        "steps.equal": "ranks step on equal gradients, or on parts of the same, so their weights stay equal",
        "steps.global": "every step equals one of a single process on the samples of all ranks together",
        "sync_batchnorm": "batch-norm statistics are computed over all ranks",
        # what the request brings
        "devices.one": "a single device on a single node is asked for",
        "launched.external": "a launcher or scheduler started all processes of the run",
        "launched.kubeflow": "the processes were started by a Kubeflow training operator",
        "launched.lsf": "the processes were started by LSF's jsrun",
        "launched.mpi": "the processes were started by mpirun",
        "launched.slurm": "the processes were started by SLURM",
        "launched.torchrun": "the processes were started by torchrun or another env:// launcher",
        "launched.xla": "the processes were started by torch_xla.launch in the program itself",
        "session.interactive": "the code comes from a prompt, a notebook, standard input or -c",
        "session.script": "the code is a script or module that can be run again",
        # what a module brings
        "module.sequential": "the module is an nn.Sequential or has a sequential_module",
    }
)


def is_known(token: str) -> bool:
    """Tell whether ``token`` may stand in a declaration: in the table, derived from it, or prefixed."""
    base = token.removeprefix(ASKED)
    vendor, separator, rest = base.partition(":")
    return base in VOCABULARY or bool(vendor and separator and rest)


def nearest_token(token: str) -> str | None:
    """Return the known token closest to ``token``, or None when none is close."""
    import difflib  # only a wrong token pays for it

    close = difflib.get_close_matches(token.removeprefix(ASKED), VOCABULARY, n=1, cutoff=0.5)
    return close[0] if close else None


def meaning(token: str) -> str:
    """Return the line of meaning of ``token``; for a prefixed token, say whose it is."""
    base = token.removeprefix(ASKED)
    text = VOCABULARY.get(base) or f"a token of {base.partition(':')[0]}"
    return f"asked for: {text}" if token.startswith(ASKED) else text
