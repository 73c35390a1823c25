"""Looking plugins up by name: whose a name is, and what is said when it is nobody's or everybody's."""

import pytest
from support.declared import accelerator, found, precision, registry_of, strategy

from core.discovery import Failure, Found
from core.errors import DuplicatePlugin, PluginBroken, UnknownPlugin
from core.registry import Registry
from core.rules import Combination, Party


@pytest.mark.parametrize("name", ["my_ring", "MY_RING", "my-ring", "circle", "Circle", "fake:my_ring", "Fake:circle"])
def test_find_by_any_spelling(name):
    """A plugin is found by name or alias, without case, with dash for underscore, alone or behind its distribution."""
    registry = registry_of(strategy("my_ring", aliases=("circle",)), strategy("other"))
    assert registry.find("strategy", name).name == "my_ring"


def test_unknown_name_gives_the_nearest():
    """An unknown name is answered with the nearest names, all names, and where to look."""
    registry = registry_of(strategy("ddp"), strategy("ddp_sharded", aliases=("sharded",)))
    with pytest.raises(UnknownPlugin) as caught:
        registry.find("strategy", "ddp_shared")
    assert caught.value.nearest[0] == "ddp_sharded"
    assert caught.value.known == ("ddp", "ddp_sharded")
    assert str(caught.value).splitlines() == [
        "unknown strategy 'ddp_shared'; did you mean 'ddp_sharded' or 'sharded'?",
        "  known here: ddp, ddp_sharded",
        "  hint: python -m core.registry list --kind strategy",
    ]


def test_name_of_another_kind():
    """A name given for the wrong kind is told the argument it belongs to."""
    registry = registry_of(strategy("ring", aliases=("circle",)))
    with pytest.raises(UnknownPlugin, match="pass it as strategy='circle'"):
        registry.find("accelerator", "circle")


def test_unknown_distribution_before_the_colon():
    """The right name from a distribution that does not have it is unknown."""
    with pytest.raises(UnknownPlugin, match="unknown strategy 'acme:ring'"):
        registry_of(strategy("ring")).find("strategy", "acme:ring")


def test_name_that_is_turned_off():
    """A plugin that the user turned off is unknown, and the hint says what turned it off."""
    registry = Registry([], turned_off=[found(strategy("ring"), "acme")])
    for name in ("ring", "acme:ring"):
        with pytest.raises(UnknownPlugin, match="acme has it, and INTERLOCK_PLUGINS or INTERLOCK_BLOCK turns it off"):
            registry.find("strategy", name)


@pytest.mark.parametrize("order", [1, -1])
def test_two_distributions_claim_one_name(order):
    """A name from two distributions is an error that names both, whatever their order, and each can be chosen."""
    pair = [found(strategy("ring"), "acme", "1"), found(strategy("ring"), "bolt", "2")][::order]
    registry = Registry(pair)
    with pytest.raises(DuplicatePlugin, match="claimed by 2 plugins, from acme, bolt") as caught:
        registry.find("strategy", "ring")
    assert caught.value.choices == ("acme:ring", "bolt:ring")
    for choice, version in [("acme:ring", "1"), ("bolt:ring", "2"), ("BOLT:Ring", "2")]:
        assert registry.find("strategy", choice).version == version


@pytest.mark.parametrize("source", [None, "raise ImportError"])
def test_own_plugins_are_not_shadowed(site, source):
    """A third party that claims the name of one of our own plugins is in conflict with it, also when it is broken."""
    site.plugin("acme", "strategy", "ddp", source=source)
    registry = site.registry()
    with pytest.raises(DuplicatePlugin, match="acme, interlock"):
        registry.find("strategy", "ddp")
    assert registry.find("strategy", "interlock:ddp").builtin


def test_name_beats_alias():
    """An alias that is another plugin's name does not choose its owner, and the registry knows that it is lost."""
    owner, thief = found(strategy("ring")), found(strategy("zring", aliases=("ring", "zr")), "acme")
    for pair in ([owner, thief], [thief, owner]):
        registry = Registry(pair)
        assert registry.find("strategy", "ring") is owner
        assert registry.find("strategy", "zring") is registry.find("strategy", "zr") is thief
        assert registry.lost_aliases(thief) == {"ring": [owner]}
        assert registry.lost_aliases(owner) == {}
        assert registry.find("strategy", "acme:ring") is thief


def test_alias_that_two_plugins_have():
    """An alias of two plugins is an error that offers their names; the names themselves work."""
    registry = Registry([found(strategy("aa", aliases=("x",))), found(strategy("bb", aliases=("x",)))])
    with pytest.raises(DuplicatePlugin) as caught:
        registry.find("strategy", "x")
    assert caught.value.choices == ("aa", "bb")
    assert registry.find("strategy", "aa").name == "aa"
    assert list(registry.lost_aliases(registry.find("strategy", "aa"))) == ["x"]


def test_alias_spelled_like_the_own_name():
    """An alias that equals the plugin's own name is no conflict with itself."""
    registry = registry_of(strategy("my_ring", aliases=("my-ring",)))
    assert registry.find("strategy", "my-ring").name == "my_ring"
    assert registry.lost_aliases(registry.found[0]) == {}


def test_same_name_in_two_kinds():
    """Kinds are separate: a precision and a strategy may have one name."""
    registry = registry_of(strategy("apex"), precision("apex"))
    assert registry.find("strategy", "apex").kind == "strategy"
    assert registry.find("precision", "apex").kind == "precision"


def test_broken_plugin_keeps_its_place():
    """A broken plugin is listed among the names and raises its own error when it is used."""
    broken = Found("strategy", "ring", "acme:D", "acme", "1.0", failure=Failure("import", "boom", ImportError("boom")))
    registry = Registry([broken])
    assert registry.names("strategy") == ["ring"]
    assert registry.sound("strategy") == []
    with pytest.raises(PluginBroken) as caught:
        registry.find("strategy", "ring")
    assert caught.value.__cause__ is broken.failure.error


def test_names_are_those_that_work():
    """Names in conflict are given in the form that chooses one of them."""
    registry = Registry([found(strategy("ring"), "acme"), found(strategy("ring"), "bolt"), found(strategy("one"))])
    assert registry.names("strategy") == ["acme:ring", "bolt:ring", "one"]
    assert [declaration.name for declaration in registry.declarations("strategy")] == ["one"]


NOBODY = Party("the request")


def test_valid_combinations_keep_what_is_fixed():
    """With a name given, by alias or with its distribution, only its combinations come."""
    registry = registry_of(
        accelerator("a"), precision("p"), precision("q", aliases=("qq",)), strategy("s"), strategy("t")
    )
    fixed = list(registry.valid_combinations(NOBODY, {"precision": "QQ", "strategy": "fake:t"}))
    assert fixed == [Combination("a", "q", "t")]
    assert len(list(registry.valid_combinations(NOBODY, {}))) == 4


def test_plugins_in_conflict_take_part_under_their_full_name():
    """Two plugins of one name appear in combinations as what chooses them."""
    registry = Registry(
        [found(accelerator("a")), found(precision("p")), found(strategy("s"), "acme"), found(strategy("s"), "bolt")]
    )
    names = [str(combination.strategy) for combination in registry.valid_combinations(NOBODY, {})]
    assert names == ["acme:s", "bolt:s"]
    assert registry.can_run(Combination("a", "p", "bolt:s"))
