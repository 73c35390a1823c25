"""From a request to a plan, or to the one error that says everything."""

import itertools

import pytest
from support.declared import accelerator, found, precision, registry_of, strategy

from core.declarations import Exclude, Need, Option, Package
from core.errors import DuplicatePlugin, InvalidCombination, PluginUnavailable
from core.registry import Registry
from core.request import Features, Request
from core.rules import Combination
from core.session import LaunchEnvironment, Ranks
from core.spellings import Devices

SCRIPT = Need("session.script", "it runs the script again")
MANY = ("devices.many", "launch.subprocess", "launch.external", "clip.norm")


def shop(**changes):
    """Return a registry with a fixed set of plugins, some of them replaced or left out (None)."""
    plugins = {
        "host": accelerator("host", provides=("collective.gloo", "autocast.bfloat16"), preference=1),
        "npu": accelerator(
            "npu",
            "four",
            provides=("collective.gloo", "devices.indexed", "autocast.float16", "grad_scaler"),
            preference=9,
        ),
        "full": precision("full", preference=1),
        "half": precision("half", needs=(Need("autocast.float16", "it runs in float16"),), aliases=("16",)),
        "alone": strategy("alone", provides=("clip.norm", "clip.value"), preference=9),
        "team": strategy(
            "team", provides=MANY, needs=(Need("collective.gloo", "it exchanges"), SCRIPT), ranks="device", preference=5
        ),
    }
    return registry_of(*(plugin for plugin in {**plugins, **changes}.values() if plugin is not None))


def ask(registry=None, **fields):
    devices = fields.pop("devices", None)
    if devices is not None:
        fields["devices"] = devices if isinstance(devices, Devices) else Devices(count=devices)
    return (registry or shop()).resolve(Request(**fields))


def test_auto_takes_the_most_preferred():
    """Auto takes the most preferred accelerator that is here, the default precision and the most preferred strategy."""
    plan = ask()
    assert plan.combination == Combination("npu", "full", "team")
    assert (plan.num_devices, plan.world_size, plan.devices_reason) == (4, 4, "auto: all here")
    assert all(chosen.reason.startswith("auto: ") for chosen in plan.chosen)


def test_auto_passes_over_what_is_not_here():
    """An accelerator that is not here is passed over, and the plan says so with the reason."""
    plan = ask(shop(npu=accelerator("npu", "none", preference=9)))
    assert plan.combination == Combination("host", "full", "alone")
    assert plan.accelerator.reason == "auto: the best that is here; passed over npu (no driver found)"


def test_auto_never_takes_what_does_not_want_it():
    """A plugin with preference 0 is never taken, even where it is the only one of its kind."""
    with pytest.raises(PluginUnavailable, match="precision 'auto' cannot run here"):
        ask(shop(full=None))


def test_auto_with_nothing_installed():
    """Without any accelerator the error says that none is installed."""
    with pytest.raises(PluginUnavailable, match="no accelerator plugin is installed"):
        Registry([]).resolve(Request())


def test_auto_strategy_follows_the_devices():
    """One device takes the strategy for one; several take the one for several."""
    assert ask(devices=1).strategy.name == "alone"
    assert ask(devices=2).strategy.name == "team"


def test_auto_strategy_passes_over_missing_packages():
    """A strategy whose package is missing is not taken by auto."""
    team = strategy("team", provides=MANY, ranks="device", preference=99, packages=(Package("no-such-thing"),))
    assert ask(shop(team=team), devices=1).strategy.name == "alone"


def test_auto_stops_at_a_name_in_conflict():
    """Auto does not slip past a name that two plugins claim: taking it is the same error as asking for it."""
    plugins = [*shop().found, found(strategy("alone"), "acme")]
    with pytest.raises(DuplicatePlugin, match="fake:alone"):
        Registry(plugins).resolve(Request(devices=Devices(count=1)))
    assert Registry(plugins).resolve(Request(strategy="acme:alone")).strategy.distribution == "acme"


def test_what_was_asked_is_what_runs():
    """Names that were given are taken as they are, by alias too, and nothing is substituted."""
    plan = ask(accelerator="NPU", precision="16", strategy="alone")
    assert plan.combination == Combination("npu", "half", "alone")
    assert [chosen.reason for chosen in plan.chosen] == ["asked for"] * 3
    assert plan.num_devices == 1


@pytest.mark.parametrize(
    ("devices", "count"),
    [(Devices(count=3), 3), (Devices(count=-1), 4), (Devices(), 4), (Devices(indices=(1, 3)), 2)],
)
def test_devices_are_counted(devices, count):
    """A count, all, auto and a list each come to a number of devices."""
    plan = ask(strategy="team", devices=devices)
    assert (plan.num_devices, plan.devices, plan.world_size) == (count, devices.indices, count)


def test_all_devices_of_what_has_no_number():
    """All devices of an accelerator without a fixed number cannot be counted, and the error asks for a count."""
    with pytest.raises(InvalidCombination, match="the request and accelerator 'host' disagree about devices") as caught:
        ask(accelerator="host", devices=-1)
    assert "give a count" in str(caught.value)


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (Devices(count=5), "5 devices asked for, npu has 4 here"),
        (Devices(indices=(0, 4)), "device index 4 asked for, npu has 0 to 3 here"),
    ],
)
def test_more_devices_than_there_are(devices, reason):
    """More devices than there are, or an index beyond them, is unavailable, and not suggested again."""
    with pytest.raises(PluginUnavailable) as caught:
        ask(accelerator="npu", strategy="team", devices=devices)
    assert caught.value.reasons == (reason,)
    assert all(combination.accelerator != "npu" for combination in caught.value.suggestions)


def test_every_broken_rule_in_one_error():
    """All rules that a combination breaks come in one error, the request's among them, each with its reason."""
    with pytest.raises(InvalidCombination) as caught:
        ask(
            accelerator="host",
            precision="half",
            strategy="team",
            num_nodes=2,
            session="session.interactive",
            features=Features(gradient_clip_val=1.0, gradient_clip_algorithm="value"),
        )
    assert [violation.token for violation in caught.value.violations] == [
        "autocast.float16",
        "session.script",
        "clip.value",
        "nodes.many",
        "launched.external",
    ]
    text = str(caught.value)
    assert all(violation.fact in text and violation.reason in text for violation in caught.value.violations)


def test_error_names_what_auto_chose():
    """The error writes out the whole combination and marks the parts that nobody asked for."""
    with pytest.raises(InvalidCombination) as caught:
        ask(accelerator="host", precision="half", devices=2)
    first, *_ = str(caught.value).splitlines()
    assert first == ("accelerator='host', precision='half', strategy='team' (auto), devices=2 cannot work together")


def test_suggestions_change_as_little_as_possible():
    """The nearest combinations change the precision first, then the strategy, then the accelerator."""
    with pytest.raises(InvalidCombination) as caught:
        ask(accelerator="host", precision="half", strategy="team")
    assert caught.value.suggestions == (
        Combination("host", "full", "team"),
        Combination("npu", "half", "team"),
        Combination("host", "full", "alone"),
    )


REQUESTS = [
    Request(accelerator=a, precision=p, strategy=s, devices=d, session=where, features=features)
    for a, p, s, d, where, features in itertools.product(
        ("host", "npu"),
        ("full", "half"),
        ("alone", "team"),
        (Devices(), Devices(count=2), Devices(count=9), Devices(indices=(0,))),
        ("session.script", "session.interactive"),
        (Features(), Features(gradient_clip_val=1.0, gradient_clip_algorithm="value"), Features(sync_batchnorm=True)),
    )
]


def test_every_suggestion_works():
    """Whatever fails, each suggested combination resolves when the rest of the request stays as it was."""
    registry, failed = shop(), 0
    for request in REQUESTS:
        try:
            registry.resolve(request)
        except (InvalidCombination, PluginUnavailable) as error:
            failed += 1
            for combination in error.suggestions:
                assert registry.resolve(Request(**{**vars(request), **combination._asdict()}))
    assert failed > 50


def test_suggestions_can_run_here():
    """A combination whose package or hardware is missing is never suggested."""
    registry = shop(npu=accelerator("npu", "none", provides=("autocast.float16", "grad_scaler")))
    with pytest.raises(InvalidCombination) as caught:
        ask(registry, accelerator="host", precision="half", strategy="alone")
    assert {combination.accelerator for combination in caught.value.suggestions} == {"host"}


def test_unavailable_names_every_reason():
    """What is valid but cannot run here says for each plugin what is missing."""
    team = strategy("team", provides=MANY, packages=(Package("no-such-thing", extra="things"),))
    with pytest.raises(PluginUnavailable) as caught:
        ask(shop(team=team, npu=accelerator("npu", "none")), accelerator="npu", strategy="team")
    assert len(caught.value.reasons) == 2
    assert caught.value.reasons[0] == "accelerator 'npu': no driver found"
    assert caught.value.reasons[1].startswith("strategy 'team': package 'no-such-thing' is not installed")


def test_invalid_comes_before_unavailable():
    """A combination that can work nowhere is called invalid, whatever is missing here."""
    with pytest.raises(InvalidCombination):
        ask(shop(host=accelerator("host", "none")), accelerator="host", precision="half")


def test_module_tokens_wait_for_the_module():
    """A need that only a module can meet is left open until there is one."""
    pipeline = strategy("pipeline", needs=(Need("module.sequential", "stages are cut between layers"),))
    assert ask(shop(pipeline=pipeline), strategy="pipeline").strategy.name == "pipeline"


TORCHRUN = LaunchEnvironment(
    "torchrun", "started by torchrun (WORLD_SIZE=2)", Ranks(0, 0, 0, 2, 2), tokens=("launched.external",)
)


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ({"devices": Devices(indices=(0, 1))}, ["devices=2"]),
        ({"devices": Devices(indices=(3,))}, ["devices=1"]),
        ({"devices": Devices(count=-1)}, ["devices=1"]),
        ({"num_nodes": 2}, ["num_nodes=1"]),
        ({"features": Features(sync_batchnorm=True)}, ["sync_batchnorm=False"]),
        ({"features": Features(benchmark=True)}, ["benchmark=False"]),
        ({"features": Features(accumulate_grad_batches=2)}, ["accumulate_grad_batches=1"]),
        (
            {"features": Features(gradient_clip_val=1.0, gradient_clip_algorithm="value"), "devices": 2},
            ["gradient_clip_algorithm='norm'", "gradient_clip_val=None"],
        ),
        (
            {"features": Features(accumulate_grad_batches=2, sync_batchnorm=True), "devices": Devices(indices=(0, 1))},
            ["devices=2, sync_batchnorm=False, accumulate_grad_batches=1"],
        ),
        ({"devices": 3, "environment": TORCHRUN}, ["devices=2"]),
        ({"devices": 2, "num_nodes": 2, "environment": TORCHRUN}, ["num_nodes=1"]),
    ],
    ids=lambda value: " and ".join(value),
)
def test_what_to_write_where_no_other_plugins_help(asked, settings):
    """An error that no other plugins would mend says what to write instead, with the fewest changes."""
    registry = shop(npu=None, half=None)
    if "gradient_clip_algorithm='norm'" in settings:
        registry = shop(npu=None, half=None, alone=None)
    with pytest.raises(InvalidCombination) as caught:
        ask(registry, accelerator="host", **asked)
    assert caught.value.suggestions == ()
    assert list(caught.value.settings) == settings
    assert str(caught.value).splitlines()[-len(settings) :] == [f"  {setting}" for setting in settings]


def test_launcher_gives_the_number_of_processes():
    """Under a launcher auto means one device per process that it started, and nothing else is started."""
    plan = ask(strategy="team", environment=TORCHRUN)
    assert (plan.num_devices, plan.world_size, plan.launch.how) == (2, 2, "external")


@pytest.mark.parametrize("fields", [{"devices": 4}, {"devices": 1}, {"strategy": "alone"}])
def test_launcher_that_disagrees(fields):
    """A launcher that started another number of processes is refused at once, with both numbers."""
    with pytest.raises(InvalidCombination, match="the launcher and the request disagree about WORLD_SIZE") as caught:
        ask(environment=TORCHRUN, **{"strategy": "team", **fields})
    assert "WORLD_SIZE=2" in str(caught.value)


def test_layout_of_one_process_on_each_node():
    """Where a strategy has one process on each node, commands and numbers say so, and auto takes all devices of it."""
    team = strategy("team", provides=(*MANY, "nodes.many"), ranks="node")
    with pytest.raises(InvalidCombination, match="torchrun --nnodes 2 --nproc-per-node 1 starts"):
        ask(shop(team=team), strategy="team", devices=4, num_nodes=2)
    with pytest.raises(InvalidCombination, match="num_nodes=3 with one process on each, as team has it, makes 3"):
        ask(shop(team=team), strategy="team", devices=4, num_nodes=3, environment=TORCHRUN)
    plan = ask(shop(team=team), strategy="team", num_nodes=2, environment=TORCHRUN)
    assert (plan.num_devices, plan.world_size) == (4, 2)


def test_how_processes_start():
    """One process runs here; several are started in the way that the strategy provides."""
    assert ask(strategy="alone").launch.how == "here"
    assert ask(strategy="team", devices=2).launch.how == "subprocess"
    spawn = strategy("spawn", provides=("devices.many", "launch.spawn"), ranks="device")
    assert ask(shop(spawn=spawn), strategy="spawn", devices=2).launch.how == "spawn"


def test_options_of_an_instance_replace_the_defaults():
    """The plan shows each option with the value it will have."""
    team = strategy("team", provides=MANY, options=(Option("bucket", 25, "MB"), Option("static", False, "promise")))
    registry = shop(team=team)
    plan = ask(registry, strategy="team", options={"strategy": (("bucket", 50),)})
    assert plan.strategy.options == (("bucket", 50), ("static", False))


def test_exclusion_of_what_is_asked():
    """A plugin that cannot live with a feature refuses the asking for it."""
    shy = precision("shy", excludes=(Exclude("asked.clip.norm", "it clips by itself"),))
    with pytest.raises(InvalidCombination, match=r"excludes that clip\.norm is asked for, as the request does"):
        ask(shop(shy=shy), precision="shy", features=Features(gradient_clip_val=1.0))
    assert ask(shop(shy=shy), precision="shy")


def test_resolving_changes_nothing():
    """The same request resolves to an equal plan again."""
    registry = shop()
    assert registry.resolve(Request()) == registry.resolve(Request())
