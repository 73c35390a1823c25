"""What the Trainer, or ``explain``, was asked for (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.arguments import choice, clip_value, flag, whole
from core.declarations import Kind, Need
from core.environments import detect_environment
from core.rules import Party
from core.session import LaunchEnvironment, session_token
from core.spellings import AUTO, Devices, parse_devices, parse_name


@dataclass(frozen=True)
class Features:
    """The Trainer's settings that only some plugins can honour.

    Raises:
        InvalidArgument: for a value that a setting cannot have.
    """

    gradient_clip_val: float | None = None
    gradient_clip_algorithm: str = "norm"
    accumulate_grad_batches: int = 1
    sync_batchnorm: bool = False
    benchmark: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "gradient_clip_val", clip_value("gradient_clip_val", self.gradient_clip_val))
        choice("gradient_clip_algorithm", self.gradient_clip_algorithm, ("norm", "value"))
        whole("accumulate_grad_batches", self.accumulate_grad_batches, least=1)
        flag("sync_batchnorm", self.sync_batchnorm)
        flag("benchmark", self.benchmark)

    def needs(self) -> list[Need]:
        """Return what these settings need, with the setting named in each reason."""
        needs = []
        if self.gradient_clip_val:
            by = self.gradient_clip_algorithm
            needs.append(Need(f"clip.{by}", f"gradient_clip_val={self.gradient_clip_val} clips by {by}"))
        if self.accumulate_grad_batches > 1:
            reason = f"accumulate_grad_batches={self.accumulate_grad_batches} exchanges gradients once per window"
            needs.append(Need("grad_sync.skip", reason))
        if self.sync_batchnorm:
            needs.append(Need("sync_batchnorm", "sync_batchnorm=True computes batch statistics over all ranks"))
            needs.append(Need("sync_batchnorm.kernel", "torch.nn.SyncBatchNorm runs only on some devices"))
        if self.benchmark:
            needs.append(Need("cudnn.benchmark", "benchmark=True lets cuDNN try out its kernels"))
        return needs


_ANY_DEVICES = Devices()
_NO_FEATURES = Features()
_NO_LAUNCHER = LaunchEnvironment("none", "no launcher's variables are set")


@dataclass(frozen=True)
class Request:
    """A combination that was asked for, with names as people wrote them."""

    accelerator: str = AUTO
    precision: str = AUTO
    strategy: str = AUTO
    devices: Devices = _ANY_DEVICES
    num_nodes: int = 1
    features: Features = _NO_FEATURES
    session: str = "session.script"
    environment: LaunchEnvironment = _NO_LAUNCHER
    options: Mapping[Kind, tuple[tuple[str, object], ...]] = field(default_factory=dict)
    """Options of the plugins that were given as configured instances."""

    @classmethod
    def build(
        cls,
        accelerator: object = AUTO,
        precision: object = None,
        strategy: object = AUTO,
        devices: object = AUTO,
        num_nodes: object = 1,
        features: Features = _NO_FEATURES,
        options: Mapping[Kind, tuple[tuple[str, object], ...]] | None = None,
    ) -> Request:
        """Read the arguments as people spell them, and where this process comes from.

        Raises:
            InvalidArgument: for a value outside the tables of :mod:`core.spellings`.
        """
        return cls(
            parse_name("accelerator", accelerator),
            parse_name("precision", precision),
            parse_name("strategy", strategy),
            parse_devices(devices),
            whole("num_nodes", num_nodes, least=1),
            features,
            session_token(),
            detect_environment(),
            options or {},
        )

    def party(self, num_devices: int, ranks_per_node: int | None = None) -> Party:
        """Return what this request states, once it is known to mean ``num_devices`` devices per node.

        Where it is known too how many processes a node has, the command that starts them says so.
        """
        needs = self.features.needs()
        if num_devices > 1:
            needs.append(Need("devices.many", f"{num_devices} devices are asked for"))
        if self.num_nodes > 1:
            needs.append(Need("nodes.many", f"{self.num_nodes} nodes are asked for"))
            command = f"torchrun --nnodes {self.num_nodes} --nproc-per-node {ranks_per_node or num_devices}"
            needs.append(Need("launched.external", f"{command} starts the processes on every node"))
        if self.devices.indices is not None:
            needs.append(Need("devices.indexed", f"devices={self.devices} picks devices by index"))
        alone = {"devices.one"} if num_devices == 1 and self.num_nodes == 1 else set()
        brought = frozenset({self.session, *self.environment.tokens, *alone})
        return Party("the request", brought, tuple(needs), asks=True)
