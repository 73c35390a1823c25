"""The pipeline strategy on real processes: four, as one pipeline of four stages and as two of two."""

import pytest
from support import staged_checks as checks
from support.staged import TRAINED, Staged

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]  # a job of many cases is one test's set-up


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train all cases in one set of processes, and return the folder with what they left."""
    folder = tmp_path_factory.mktemp("pipeline")
    checks.run_job("pipeline", 4, folder, "train")
    return folder


@pytest.mark.parametrize("name", TRAINED)
def test_trains_as_one_process(trained, name):
    """Every rank ends with the whole model, trained to the parameters of one process on the same global batches."""
    checks.check_weights(trained, name, TRAINED[name], ranks=4)


@pytest.mark.parametrize(("name", "replicas"), [("clipped", 1), ("two pipelines", 2)])
def test_all_ranks_have_the_metrics(trained, name, replicas):
    """What the last stage logs is there on every rank, and a sum over ranks counts each sample once."""
    checks.check_metrics(trained, name, TRAINED[name], 4, replicas)


@pytest.mark.parametrize("name", ["clipped", "two pipelines"])
def test_single_device_reads_its_checkpoint(trained, name):
    """The stages' parts make one full checkpoint, from which a single device trains on."""
    checks.check_single_device_goes_on(trained, name, TRAINED[name])


def test_evaluates_as_one_process(trained):
    """Validation and prediction give every rank what one process gives."""
    checks.check_evaluation(trained, Staged(), 4)


def test_resumes_on_nodes(trained):
    """A program on two nodes goes on inside an epoch, dropout included, and from a single device's checkpoint."""
    checks.write_single_checkpoint(trained, Staged("adamw"))
    checks.run_on_nodes("pipeline", 4, 2, trained, "resume")
    checks.check_resumed(trained, 4)


def test_layer_that_raises(tmp_path):
    """A layer that raises on the last stage ends the run soon, and its own traceback comes first."""
    checks.check_failure(tmp_path, "pipeline", 3, bad=2)
