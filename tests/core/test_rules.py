"""The one rule: every need is met by a provide, and nothing excluded is present."""

import pytest
from support.declared import strategy

from core.declarations import Exclude, Need
from core.rules import Party, party_of, violations

GIVER = Party("giver", frozenset({"rpc", "clip.norm"}))
WHY = "it is so"


@pytest.mark.parametrize(
    "parties",
    [
        [],
        [GIVER],
        [Party("taker", needs=(Need("rpc", WHY),)), GIVER],
        [Party("taker", needs=(Need("spmd | rpc", WHY),)), GIVER],
        [Party("self", frozenset({"rpc"}), needs=(Need("rpc", WHY),))],
        [Party("hater", excludes=(Exclude("spmd", WHY),)), GIVER],
    ],
)
def test_combinations_that_are_valid(parties):
    """A need may be met by anyone, by one alternative, also by the one who needs; an absent token is no fault."""
    assert violations(parties) == []


def test_unmet_need_names_both_sides():
    """An unmet need is told with who needs it, who could have met it, and why it is needed."""
    (broken,) = violations([GIVER, Party("taker", needs=(Need("spmd | replicas", WHY),))])
    assert (broken.party, broken.rule, broken.found) == ("taker", "needs", ("giver",))
    assert str(broken) == "taker needs spmd or replicas, which none of giver provides: it is so"


def test_exclusion_names_both_sides():
    """A token that is excluded and present is told with who excludes it and who brings it."""
    (broken,) = violations([GIVER, Party("hater", excludes=(Exclude("rpc", WHY),))])
    assert (broken.party, broken.rule, broken.found) == ("hater", "excludes", ("giver",))
    assert str(broken) == "hater excludes rpc, which giver brings: it is so"


def test_asking_can_be_excluded():
    """A plugin can exclude the asking for a feature although another one provides the feature."""
    asking = Party("the request", needs=(Need("clip.norm", WHY),), asks=True)
    hater = Party("hater", excludes=(Exclude("asked.clip.norm", WHY),))
    (broken,) = violations([GIVER, hater, asking])
    assert str(broken) == "hater excludes that clip.norm is asked for, as the request does: it is so"
    assert violations([GIVER, hater]) == []


def test_needs_of_a_plugin_are_not_asking():
    """Only the request and the module ask; a plugin's own need does not count as asked for."""
    plugin = Party("plugin", needs=(Need("clip.norm", WHY),))
    assert violations([GIVER, plugin, Party("hater", excludes=(Exclude("asked.clip.norm", WHY),))]) == []


def test_every_broken_rule_is_reported_in_order():
    """All broken rules come back at once, in the order of the parties."""
    first = Party("first", needs=(Need("spmd", WHY), Need("replicas", WHY)))
    second = Party("second", excludes=(Exclude("rpc", WHY),))
    assert [(v.party, v.token) for v in violations([first, second, GIVER])] == [
        ("first", "spmd"),
        ("first", "replicas"),
        ("second", "rpc"),
    ]


def test_what_is_not_known_yet_leaves_a_need_open():
    """A need for a token that the module may bring is open until there is a module, and excludes nothing."""
    pipeline = Party("pipeline", needs=(Need("module.sequential", WHY),))
    hater = Party("hater", excludes=(Exclude("module.sequential", WHY),))
    assert violations([pipeline, hater], ("module.",)) == []
    assert len(violations([pipeline])) == 1


def test_party_of_a_plugin_is_called_by_kind_and_name():
    """Messages call a plugin by its kind and its name."""
    assert party_of(strategy("ring", provides=("rpc",))) == Party("strategy 'ring'", frozenset({"rpc"}))
