"""Worker names, turns, shares and stand-ins of the rpc strategy, and what it refuses before any process starts."""

import threading
from types import SimpleNamespace

import pytest
import torch
from support.staged import QUIETER, Parted
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from builtin_plugins.rpc import world
from builtin_plugins.rpc.failures import Failure, is_echo, raise_failure
from builtin_plugins.rpc.parts import RemotePart
from builtin_plugins.rpc.service import Service, request
from builtin_plugins.rpc.shares import Share
from builtin_plugins.rpc.strategy import RPCStrategy
from builtin_plugins.rpc.turns import TurnLostError, Turns
from core import Trainer
from core.errors import InterlockError, InvalidArgument, WaitTimeout
from core.session import Ranks

DATA = DataLoader(TensorDataset(torch.ones(8, 6), torch.ones(8, 2)), 8)


def fit(module, devices=2, **options):
    """Begin to train; whatever is refused before processes start is raised here."""
    trainer = Trainer(accelerator="cpu", strategy=RPCStrategy(**options), devices=devices, max_epochs=1, **QUIETER)
    try:
        trainer.fit(module, DATA)
    finally:
        trainer.end_run()


# ---------------------------------------------------------------------- names and worlds


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"main_ranks": 0}, "main_ranks"),
        ({"names": ["a", "a"]}, "worker names must differ"),
        ({"names": ["a", "with space"]}, "worker name 'with space' must be letters"),
        ({"names": ["a", "x" * 128]}, "at most 127"),
    ],
)
def test_refused_at_construction(options, said):
    """Numbers and names that cannot be are refused where they are written."""
    with pytest.raises(InvalidArgument, match=said):
        RPCStrategy(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"main_ranks": 3}, "main_ranks=3, but there are 2 devices"),
        ({"names": ["a", "b", "c"]}, "3 worker names are given for 2 ranks"),
    ],
)
def test_refused_before_any_process(options, said):
    """What does not fit the number of devices is refused at once, in the calling process."""
    with pytest.raises(InvalidArgument, match=said):
        fit(Parted(), **options)


def test_another_world_needs_another_program(monkeypatch):
    """A run whose names are others than those of the program's world is refused, and so is one after a failure."""
    there = SimpleNamespace(names=("a", "b"), threads=32, mains=1, failed=False)
    monkeypatch.setattr(world, "_world", [there])
    assert world.enter(None, ("a", "b"), 2, 16, 1.0) is there
    assert there.mains == 2
    for names, threads in [(("a", "c"), 16), (("a", "b"), 64)]:
        with pytest.raises(InvalidArgument, match="needs a program of its own"):
            world.enter(None, names, 1, threads, 1.0)
    there.failed = True
    with pytest.raises(InterlockError, match="broke when an earlier run failed"):
        world.enter(None, ("a", "b"), 1, 16, 1.0)


def test_ranks_that_serve():
    """Ranks are numbered so that those which serve come after those that run the loop."""
    assert not Ranks(1, world_size=2).serves
    assert Ranks(2, world_size=2).serves


# ---------------------------------------------------------------------- turns


def test_turns_come_in_order():
    """Requests that arrive in any order are let in by their numbers."""
    turns, order = Turns(), []

    def work(number):
        with turns.turn(number, 10.0):
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in (3, 1, 2, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert order == [0, 1, 2, 3]


def test_turn_that_does_not_come():
    """A request whose turn does not come says whose it waited for."""
    with pytest.raises(WaitTimeout, match=r"micro-batch 1 waited 0\.05 s for number 0"), Turns().turn(1, 0.05):
        pass


def test_nobody_waits_after_a_failure():
    """After a request has failed nobody gets a turn, and those that wait are let go when the failure is told."""
    turns = Turns()
    with pytest.raises(ValueError, match="bad"), turns.turn(None, 1.0):
        raise ValueError("bad")
    with pytest.raises(WaitTimeout), turns.turn(None, 0.05):
        pass
    turns.break_off()
    with pytest.raises(TurnLostError), turns.turn(None, 1.0):
        pass


# ---------------------------------------------------------------------- service and shares


def test_failure_is_remembered_and_echoes_are_not():
    """The first error of a request is the rank's; what only follows from it, or from a peer's end, is not."""
    service = Service()
    service.failed(ValueError("outside a run"))
    service.begin(None, torch.device("cpu"), 1.0)
    service.failed(TurnLostError("after another"))
    service.failed(RuntimeError("eof (this error originated at tensorpipe/transport)"))
    assert service.error is None
    first = ValueError("first")
    service.failed(first)
    service.failed(ValueError("second"))
    assert service.error is first
    assert not is_echo(first)


class OwnError(Exception):
    """Cannot be sent: it takes two arguments and hands one on."""

    def __init__(self, first, second):
        super().__init__(first)


def test_failure_of_a_request_is_raised_where_it_was_made():
    """What a request raises comes back as it was, its traceback as the cause; what cannot be sent comes as text."""
    failure = request("state", "nowhere")
    with pytest.raises(InterlockError, match="no part 'nowhere' here") as raised:
        raise_failure(failure, "worker1")
    assert "worker1\nTraceback" in str(raised.value.__cause__)
    with pytest.raises(RuntimeError, match="OwnError: first"):
        raise_failure(Failure.of(OwnError("first", "second")), "worker1")
    gone = Failure.of(RuntimeError("eof (this error originated at tensorpipe/transport)"))
    with pytest.raises(torch.distributed.DistError, match="worker1 does not answer any more"):
        raise_failure(gone, "worker1")


def test_unknown_part():
    """A request for a part that is not there names those that are."""
    service = Service()
    service.create("here", nn.Linear, (2, 2), {})
    with pytest.raises(InterlockError, match="no part 'there' here; parts: here"):
        service.state("there")


def test_part_is_made_once():
    """Ranks that make a part of the same name share it."""
    service = Service()
    looks = service.create("shared", nn.Linear, (2, 2), {})
    weight = service.state("shared")["weight"]
    assert service.create("shared", nn.Linear, (2, 2), {}) == looks
    assert torch.equal(service.state("shared")["weight"], weight)


def test_share_steps_as_the_whole_optimizer():
    """A share updates its parameters as the whole optimizer would, with the settings of the moment."""
    torch.manual_seed(0)
    whole, parts = nn.Linear(3, 2), nn.Linear(3, 2)
    parts.load_state_dict(whole.state_dict())
    optimizer = torch.optim.Adam(whole.parameters(), lr=0.1)
    groups = [{"params": [(4, ("p", "weight")), (7, ("p", "bias"))], "lr": 0.1}]
    share = Share(torch.optim.Adam, groups, optimizer.defaults, lambda place: dict(parts.named_parameters())[place[1]])
    for lr in (0.1, 0.02):
        optimizer.param_groups[0]["lr"] = lr
        for module in (whole, parts):
            module(torch.ones(4, 3)).square().sum().backward()
        square = share.square_sum()
        nn.utils.clip_grad_norm_(whole.parameters(), 0.5 * square**0.5)
        optimizer.step()
        optimizer.zero_grad()
        share.step([{"lr": lr}], 0.5, None)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))
    assert list(share.state()) == [4, 7]
    assert all(parameter.grad is None for parameter in parts.parameters())


# ---------------------------------------------------------------------- in a world of one


def test_world_of_one():
    """One rank runs the loop and serves itself: a part on it trains and is saved under the names of a local one."""

    class Alone(Parted):
        def setup(self, stage):
            self.trunk = RemotePart("worker0", nn.Linear, 9, 7)
            self.head = RemotePart("worker0", nn.Linear, 7, 2, name="head")

    module = Alone(how="parts")
    fit(module, devices=1)
    state = module.state_dict()
    assert list(state)[-4:] == ["trunk.weight", "trunk.bias", "head.weight", "head.bias"]
    assert module.head.weight.untyped_storage().nbytes() == 4
    assert state["head.weight"].abs().sum() > 0
    features = torch.ones(3, 7)
    assert torch.equal(module.head.forward_async(features).wait(), module.head(features))
    state["head.weight"] = torch.full((2, 7), 3.0)
    module.load_state_dict(state)
    assert torch.equal(module.state_dict()["head.weight"], torch.full((2, 7), 3.0))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "bias"'):
        module.load_state_dict({name: value for name, value in state.items() if name != "head.bias"})


# ---------------------------------------------------------------------- declaration


def test_own_backward_is_refused():
    """A backward of the module's own would not reach other ranks."""

    class Backward(Parted):
        def backward(self, loss):
            loss.backward()

    with pytest.raises(InterlockError, match="backward of its own"):
        fit(Backward(), devices=1)
