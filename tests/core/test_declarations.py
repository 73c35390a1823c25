"""A declaration checks itself, and says everything that is wrong with it at once."""

import dataclasses

import pytest
from support.declared import precision, strategy

from core.declarations import (
    API,
    AcceleratorDeclaration,
    Exclude,
    Need,
    Option,
    Package,
    PrecisionDeclaration,
    StrategyDeclaration,
)
from core.errors import InvalidDeclaration


def test_declaration_that_is_fine():
    """A declaration with every field filled in as documented is accepted and knows what it provides."""
    declaration = StrategyDeclaration(
        name="ring",
        summary="ring exchange",
        implementation="acme.ring:Ring",
        api=API,
        aliases=("acme-ring",),
        provides=("devices.many", "acme:ring"),
        needs=(Need("collective.gloo | collective.nccl", "it exchanges gradients"),),
        excludes=(Exclude("asked.optimizer.closure", "a closure would exchange twice"),),
        packages=(Package("acme-ring", ">=1.2,<2", module="acme.ring"),),
        wraps=("setup_device",),
        options=(Option("chunks", 4, "pieces per exchange"),),
        ranks="device",
        preference=-3,
    )
    assert declaration.kind == "strategy"
    assert declaration.provided == {"devices.many", "acme:ring"}


def test_declaration_cannot_be_changed():
    """A declaration is frozen, so that what was checked is what counts."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        precision("p").name = "q"


REASON = "because"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "Ring"}, "name 'Ring' must be lower-case letters"),
        ({"name": "a b"}, "name 'a b' must be lower-case letters"),
        ({"name": "a:b"}, "name 'a:b' must be lower-case letters"),
        ({"name": 3}, "name 3 must be lower-case letters"),
        ({"name": "auto"}, "name 'auto' is taken"),
        ({"aliases": ("auto",)}, "alias 'auto' is taken"),
        ({"aliases": ("A",)}, "alias 'A' must be lower-case letters"),
        ({"aliases": "ring"}, "aliases must be a tuple of str, not 'ring'"),
        ({"summary": ""}, "summary must be one line of text"),
        ({"summary": "two\nlines"}, "summary must be one line of text"),
        ({"summary": None}, "summary must be one line of text"),
        ({"implementation": "acme.ring"}, "implementation 'acme.ring' must have the form 'module:Name'"),
        ({"implementation": None}, "implementation None must have the form 'module:Name'"),
        ({"api": "1"}, "api must be a whole number, not '1'"),
        ({"api": True}, "api must be a whole number, not True"),
        ({"preference": "high"}, "preference must be a whole number, not 'high'"),
        ({"provides": "clip.norm"}, "provides must be a tuple of str, not 'clip.norm'"),
        ({"provides": ["clip.norm"]}, "provides must be a tuple of str"),
        ({"provides": ("clip.nrom",)}, "unknown token 'clip.nrom'; did you mean 'clip.norm'?"),
        ({"provides": ("zzz",)}, "unknown token 'zzz'; a token of your own is written 'vendor:token'"),
        ({"provides": ("asked.clip.norm",)}, "provides 'asked.clip.norm', which only asking for 'clip.norm' brings"),
        ({"needs": (Need("rpc | rcp", REASON),)}, "unknown token 'rcp'; did you mean 'rpc'?"),
        ({"needs": ("rpc",)}, "needs must be a tuple of Need"),
        ({"needs": Need("rpc", REASON)}, "needs must be a tuple of Need"),
        ({"needs": (Need("rpc", " "),)}, "'rpc' has no reason"),
        ({"needs": (Need("rpc", None),)}, "needs must be a tuple of Need"),
        ({"excludes": (Exclude("apm.apex", REASON),)}, "unknown token 'apm.apex'; did you mean 'amp.apex'?"),
        ({"excludes": (Exclude("amp.apex", ""),)}, "'amp.apex' has no reason"),
        ({"provides": ("rpc",), "excludes": (Exclude("rpc", REASON),)}, "both provides and excludes 'rpc'"),
        ({"packages": ("torch",)}, "packages must be a tuple of Package"),
        ({"packages": (Package("torch", "2.6"),)}, "versions '2.6' must be written as in a requirement"),
        ({"wraps": ("reduce",)}, "wraps 'reduce', which a strategy may not; it may wrap setup_device, transfer_batch"),
        ({"options": ("chunks",)}, "options must be a tuple of Option"),
        ({"ranks": "gpu"}, "ranks 'gpu' must be one of device, node, run"),
    ],
)
def test_declaration_with_one_fault(fields, problem):
    """Each kind of fault in a declaration is refused with a sentence of its own."""
    with pytest.raises(InvalidDeclaration) as caught:
        strategy(**{"name": "ring", **fields})
    assert len(caught.value.problems) == 1
    assert problem in caught.value.problems[0]
    assert problem in str(caught.value)


def test_declaration_with_many_faults():
    """Every fault is reported in one error, and the error names the plugin."""
    with pytest.raises(InvalidDeclaration, match="the declaration of strategy 'ring' is wrong") as caught:
        strategy("ring", provides=("zzz",), needs=(Need("rpc", ""),), wraps=("reduce",))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("probe", ["", "acme.probe", None])
def test_accelerator_without_a_probe(probe):
    """An accelerator must say where its probe is."""
    with pytest.raises(InvalidDeclaration, match=r"probe .* must have the form 'module:Name'"):
        AcceleratorDeclaration(name="npu", summary="NPUs", implementation="acme:NPU", api=API, probe=probe)


@pytest.mark.parametrize("api", [API + 1, API - 1])
def test_declaration_for_another_api_is_not_judged(api):
    """What another API allows is not judged by this one's rules; discovery refuses the number itself."""
    declaration = PrecisionDeclaration(
        name="p", summary="p", implementation="acme:P", api=api, provides=("a token of the future",)
    )
    assert declaration.api == api


def test_needs_list_their_alternatives():
    """Alternatives of a need are separated by a bar, with or without spaces."""
    assert Need("a | b|c", REASON).alternatives == ("a", "b", "c")
