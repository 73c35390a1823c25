"""One rank's part of a run: its failure told to the others, and theirs to it."""

import threading

import pytest
from torch.distributed import DistStoreError, HashStore

from core.errors import RankFailed
from core.parallel import guard
from core.parallel.guard import guarded, guarded_child, report_failure
from core.parallel.rendezvous import Rendezvous, using
from core.session import Ranks


@pytest.fixture
def ranks():
    """Return the meeting places of two ranks, the second already in its first run."""
    store = HashStore()
    both = [Rendezvous(store, Ranks(rank, rank, 0, 2, 2)) for rank in (0, 1)]
    both[1].begin_run()
    return both


def raising(error):
    def run(ranks):
        raise error

    return run


def test_result_and_end(ranks):
    """What the run returns is returned, and the others know that this part is done."""
    assert guarded(lambda ranks: ranks.world_size, ranks[0]) == 2
    assert ranks[1].has_finished(0, ranks[1].store)


def test_own_failure(ranks):
    """A rank's own failure is raised as it is, with its rank, and told to the others."""
    with pytest.raises(ValueError, match="mine") as raised:
        guarded(raising(ValueError("mine")), ranks[0])
    assert getattr(raised.value, "__notes__", ["raised on rank 0 of 2"]) == ["raised on rank 0 of 2"]
    assert ranks[1].first_failure().what == "ValueError: mine"
    assert not ranks[1].has_finished(0, ranks[1].store)


@pytest.mark.parametrize(
    "echo", [RuntimeError("[gloo/pair.cc] Connection closed by peer"), DistStoreError("no answer")], ids=repr
)
def test_echo_waits_for_the_cause(ranks, monkeypatch, echo):
    """A broken exchange waits to hear whose failure broke it, and is raised as that."""
    monkeypatch.setattr(guard, "ECHO_WAIT", 30.0)
    threading.Timer(0.2, ranks[1].report, [ValueError("theirs")]).start()
    with pytest.raises(RankFailed, match="rank 1 of 2 failed: ValueError: theirs"):
        guarded(raising(echo), ranks[0])


def test_exchange_that_broke_by_itself(ranks, monkeypatch):
    """A broken exchange that no failure explains is raised as it is after a while."""
    monkeypatch.setattr(guard, "ECHO_WAIT", 0.1)
    with pytest.raises(RuntimeError, match="NCCL"):
        guarded(raising(RuntimeError("NCCL error")), ranks[0])


def test_ctrl_c_is_no_failure(ranks):
    """Ctrl-C passes through and is no failure of this rank."""
    with pytest.raises(KeyboardInterrupt):
        guarded(raising(KeyboardInterrupt()), ranks[0])
    assert ranks[1].first_failure() is None


def test_child_is_silent_about_others(ranks):
    """A watched rank ends without a word for what another rank or Ctrl-C did, and speaks for itself."""
    with pytest.raises(ValueError, match="mine"):
        guarded_child(raising(ValueError("mine")), ranks[0])
    other = Rendezvous(ranks[0].store, ranks[1].ranks)
    with pytest.raises(SystemExit, match="1"):
        guarded_child(raising(RuntimeError("echo")), other)
    with pytest.raises(SystemExit, match="1"):
        guarded_child(raising(KeyboardInterrupt()), other)


def test_failure_is_told_before_callbacks_act_on_it(ranks):
    """The others hear of a failure before this rank's callbacks do something about it."""

    def run(own):
        try:
            raise ValueError("mine")
        except ValueError as error:
            report_failure(error)
            heard = ranks[1].first_failure()

            assert heard is not None
            assert heard.rank == 0
            raise

    with using(ranks[0]), pytest.raises(ValueError, match="mine"):
        guarded(run, ranks[0])
