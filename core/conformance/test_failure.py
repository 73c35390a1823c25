"""How runs end."""

from __future__ import annotations

from core.conformance.checks import cannot_judge, check, lacks
from core.conformance.judge import Judge
from core.conformance.model import PURPOSE


@check("strategy")
def test_a_good_program_ends_well(judge: Judge) -> None:
    """A program whose runs went through ends with exit status 0 and leaves no process."""
    facts = judge.ran("plain")
    if judge.lab.facts("plain").ending is not judge.lab.endings["main"][-1]:
        cannot_judge("a run of the program failed, see the checks about it")
    if facts.ending.code != 0:
        lacks(str(facts.ending))
    if facts.ending.left:
        lacks(f"it left {', '.join(facts.ending.left)}")


@check("strategy")
def test_a_raising_rank_ends_the_run(judge: Judge) -> None:
    """When the last rank raises in its third step, the program shows the error and ends with a bad exit status."""
    judge.running()
    ending = judge.lab.facts("raised").ending
    if ending.code is None:
        lacks(str(ending))
    if ending.code == 0:
        lacks(f"a rank raised, and {ending}")
    if PURPOSE not in ending.output:
        lacks(f"the error that the rank raised is not shown; {ending}")


@check("strategy", several=True)
def test_a_raising_rank_is_named(judge: Judge) -> None:
    """When a rank raises, the output says which."""
    last = judge.running().ranks[0]["loop_ranks"] - 1
    ending = judge.lab.facts("raised").ending
    if f"rank {last}" not in ending.output:
        lacks(f"'rank {last}' is not in the output; {ending}")


@check("strategy")
def test_a_raising_rank_leaves_no_process(judge: Judge) -> None:
    """When a rank raises, no process of the run is left."""
    judge.running()
    ending = judge.lab.facts("raised").ending
    if ending.code is None:
        cannot_judge("the program did not end by itself")
    if ending.left:
        lacks(f"it left {', '.join(ending.left)}")


@check("strategy", claims="launch.external", several=True)
def test_joins_a_launcher(judge: Judge) -> None:
    """Started by torchrun, its ranks join the processes that are there and train to the same parameters."""
    judge.running()
    ways = {record["launch"] for record in judge.ran("launched").ranks}
    if ways != {"external"}:
        lacks(f"the ranks were started by {', '.join(sorted(ways))}, and torchrun had started them already")
    judge.trains("launched")
