"""Tests on one CUDA GPU, `make test-gpu`; where there is none each is skipped."""

import pytest
import torch

NONE = "no CUDA GPU here"


@pytest.fixture(autouse=True)
def on_a_gpu():
    """Skip where there is no GPU."""
    if not torch.cuda.is_available():
        pytest.skip(NONE)
