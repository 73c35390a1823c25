"""Shallow copies of a module that share its memory."""

from __future__ import annotations

from typing import Any

from torch import nn

from core.parallel.replicas.metrics import SharedMetric, is_metric


class Copy:
    """One replica: a copy of the module tree, whose parameters are leaves of their own over the same memory.

    Gradients of the copy stay apart from those of other copies until they are collected.
    """

    def __init__(self, module: nn.Module, parameters: dict[nn.Parameter, nn.Parameter]) -> None:
        self.module, self.parameters = module, parameters


def copy_module(module: nn.Module, *, with_gradients: bool, own_buffers: bool) -> Copy:
    """Copy the module tree, sharing the memory of its parameters.

    Args:
        module: what is copied; a part or a parameter that occurs twice occurs twice in the copy, too.
        with_gradients: give the copy parameters of its own, so that its gradients are its own.
        own_buffers: give the copy buffers of its own, so that what it writes to them is forgotten.
    """
    parts = {part: part._replicate_for_data_parallel() for part in module.modules()}  # type: ignore[no-untyped-call]
    parameters: dict[nn.Parameter, nn.Parameter] = {}
    for part, copy in parts.items():
        # recurrent layers keep a list of their own in step with what is assigned to them
        own_way: Any = type(copy).__setattr__
        assign = copy._parameters.__setitem__ if own_way is nn.Module.__setattr__ else copy.__setattr__
        for name, child in part._modules.items():
            copy._modules[name] = None if child is None else _copy_of(child, parts)
        for name, parameter in part._parameters.items():
            if parameter is None:
                copy._parameters[name] = None
                continue
            if parameter not in parameters:
                parameters[parameter] = _over_same_memory(parameter) if with_gradients else parameter
            assign(name, parameters[parameter])
        if own_buffers:
            for name, buffer in part._buffers.items():
                copy._buffers[name] = None if buffer is None else buffer.clone()
    return Copy(parts[module], parameters)


def _copy_of(child: nn.Module, parts: dict[nn.Module, nn.Module]) -> Any:
    return SharedMetric(child) if is_metric(child) else parts[child]


def _over_same_memory(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
