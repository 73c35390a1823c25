"""Meeting points of several ranks, here in threads that share a store."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from core.errors import RankFailed, WaitTimeout
from core.parallel.rendezvous import Rendezvous, current, has_current, set_current, using
from core.session import Ranks


@pytest.fixture
def ranks():
    """Return the meeting places of two ranks in their first run."""
    store = HashStore()
    both = [Rendezvous(store, Ranks(rank, rank, 0, 2, 2)) for rank in (0, 1)]
    for one in both:
        one.begin_run()
    return both


def together(*calls):
    """Make the calls at the same time; return what each returned or raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        waiting = [pool.submit(*call) for call in calls]
        return [one.exception() or one.result() for one in waiting]


def test_ranks_that_come_meet(ranks):
    """Ranks that come to the same points, in the same order, go on; in every run anew."""
    for _ in range(2):
        for name in ("first", "second"):
            assert together(*((rank.meet, name, 10) for rank in ranks)) == [None, None]
        for rank in ranks:
            rank.begin_run()


def test_rank_that_does_not_come(ranks):
    """A rank that does not come is named, with the point and the time, and where to look."""
    with pytest.raises(WaitTimeout, match=r"rank 0 waited 0.05 s at 'here' for rank 1 of 2\n  hint: .* `if rank == 0`"):
        ranks[0].meet("here", 0.05)


def test_ranks_at_different_points(ranks):
    """Ranks that came to different points are both told so at once."""
    errors = together((ranks[0].meet, "save", 10), (ranks[1].meet, "validate", 10))
    assert [str(error).splitlines()[0] for error in errors] == [
        "rank 0 is at 'save', but rank 1 is at 'validate'",
        "rank 1 is at 'validate', but rank 0 is at 'save'",
    ]


def test_rank_that_left_the_program(ranks):
    """A rank whose program is over is not waited for."""
    ranks[0].leave()
    with pytest.raises(WaitTimeout, match=r"rank 1 is at 'here', but rank 0 has come to the end of the program"):
        ranks[1].meet("here", 10)


def test_first_failure_stands(ranks):
    """Of several failures the first counts for all ranks, with its rank, its words and its traceback as the cause."""
    first = ranks[1].report(ValueError("on purpose"))
    echo = ranks[0].report(RuntimeError("connection closed"))
    assert (first.rank, first.what) == (echo.rank, echo.what) == (1, "ValueError: on purpose")
    with pytest.raises(RankFailed, match=r"rank 1 of 2 failed: ValueError: on purpose$") as failed:
        ranks[0].meet("here", 10)
    assert "ValueError: on purpose" in str(failed.value.__cause__)


def test_rank_that_meets_after_its_own_failure(ranks):
    """A rank that failed and comes to a meeting point learns at once that nobody will meet it there."""
    ranks[1].report(ValueError("on purpose"))
    with pytest.raises(WaitTimeout, match=r"rank 1 is at 'save' after it failed"):
        ranks[1].meet("save", 10)


def test_failure_counts_for_its_run(ranks):
    """The next run starts without the failure of the one before, and ends of ranks are counted for each run."""
    ranks[1].report(ValueError("on purpose"))
    ranks[1].end_run()
    assert ranks[0].has_finished(1, ranks[0].store)
    for rank in ranks:
        rank.begin_run()
    assert ranks[0].first_failure() is None
    assert not ranks[0].has_finished(1, ranks[0].store)
    assert not ranks[0].has_come(1, ranks[0].store)
    assert together(*((rank.meet, "here", 10) for rank in ranks)) == [None, None]
    assert ranks[0].has_come(1, ranks[0].store)


def test_meeting_place_of_a_run_alone(ranks):
    """A run alone has a meeting place of its own, and the one before comes back."""
    before = [current()] if has_current() else []
    with using(ranks[0]):
        assert current() is ranks[0]
        set_current(ranks[1])
    assert ([current()] if has_current() else []) == before
