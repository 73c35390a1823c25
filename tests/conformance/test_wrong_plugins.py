"""A plugin that does one thing wrong fails the check for that thing, and no other."""

import pytest
from wrong_plugins import FORGOTTEN_SYNC, NO_CLIPPING, WRONG_MEAN, install, install_parallel

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]


def test_wrong_reduction(kit):
    """A strategy that takes the mean of 3 and 4 for 3 is told so."""
    install_parallel(kit.site, "wrong_mean", WRONG_MEAN)
    answer = kit("--strategy", "wrong_mean")
    assert answer.code == 1, answer.out
    assert answer.failed == ["test_reduce[mean-integers]"]
    assert "rank 0 got [3, 4, -6] as the mean of" in answer.out
    assert "not judged" not in answer.counts


def test_forgotten_sync(kit):
    """A strategy that stops exchanging gradients after the first window is told so; what rests on it is not judged."""
    install_parallel(kit.site, "forgets", FORGOTTEN_SYNC)
    answer = kit("--strategy", "forgets")
    assert answer.code == 1, answer.out
    assert answer.failed == ["test_gradients_are_exchanged_once_per_window"]
    assert "claims grad_sync.skip, but: after step 1 of 6, rank 1 and rank 0 hold different parameters" in answer.out
    assert answer.counts["not judged"] == 1


def test_claim_without_substance(kit):
    """A strategy that claims clip.norm and does not clip is told so."""
    install(kit.site, "soft", NO_CLIPPING, provides=("steps.global", "clip.norm", "clip.value"))
    answer = kit("--strategy", "soft", "--accelerator", "cpu")
    assert answer.code == 1, answer.out
    assert answer.failed == ["test_clipping_by_norm"]
    assert "claims clip.norm, but: after step 1 of 6 it differs from the hand-written loop" in answer.out
    assert "not judged" not in answer.counts


def test_declaration_that_imports_torch(kit):
    """A declaration that brings torch with it is told so; its implementation is fine."""
    install(kit.site, "heavy", NO_CLIPPING, before="import torch", provides=())
    answer = kit("--strategy", "heavy", "-k", "declaration")
    assert answer.failed == ["test_declaration_is_torch_free[strategy]"]
    assert "importing acme_heavy:DECLARATION imports torch" in answer.out
