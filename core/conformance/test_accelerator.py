"""What an accelerator's device holds and can do."""

from __future__ import annotations

from core.conformance.checks import check, lacks
from core.conformance.judge import Judge


@check("accelerator")
def test_tensors_land_on_its_device(judge: Judge) -> None:
    """Parameters and batches of each rank are on one device, of the type that its tokens name."""
    named = [token.partition(".")[2] for token in judge.setup.declaration("accelerator").provides]
    for rank, record in enumerate(judge.ran("plain").ranks):
        where = record["observed"]
        if where["device"] != where["batch"]:
            lacks(f"on rank {rank} the parameters are on {where['device']}, the batches on {where['batch']}")
        tokens = [token for token in judge.setup.declaration("accelerator").provides if token.startswith("device.")]
        if tokens and where["device"].partition(":")[0] not in named:
            lacks(f"on rank {rank} the parameters are on {where['device']}, and it provides {', '.join(tokens)}")


@check("accelerator")
def test_claim_works_on_the_device(judge: Judge, tried: str) -> None:
    """What it claims of arithmetic, loss scaling and exchange works on its device."""
    judge.running()
    for rank, answers in enumerate(judge.ran("device").answers):
        answer = answers[tried]
        problem = answer.get("error") or answer["value"]
        if problem:
            lacks(f"it claims {tried}, but on rank {rank}: {problem}")
