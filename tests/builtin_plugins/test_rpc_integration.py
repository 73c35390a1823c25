"""The rpc strategy on real processes: three, of which one or two run the loop."""

import pytest
from support import staged_checks as checks
from support.staged import PARTED, SHARED, Parted

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]  # a job of many cases is one test's set-up


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train all cases in one RPC world, and return the folder with what its ranks left."""
    folder = tmp_path_factory.mktemp("rpc")
    checks.run_job("rpc", 3, folder, "train")
    return folder


@pytest.mark.parametrize("name", PARTED)
def test_trains_as_one_process(trained, name):
    """A module with parts on two workers is trained to the parameters of one process; RemoteModule makes parts too."""
    checks.check_weights(trained, name, PARTED[name])


def test_all_ranks_have_the_metrics(trained):
    """Ranks that serve are told the counts and metrics of the main rank."""
    checks.check_metrics(trained, "clipped", PARTED["clipped"], 3, replicas=1)


def test_single_device_reads_its_checkpoint(trained):
    """Remote parts are in the checkpoint under the names of local ones, and a single device trains on from it."""
    checks.check_single_device_goes_on(trained, "clipped", PARTED["clipped"])


def test_evaluates_as_one_process(trained):
    """Validation and prediction give every rank what one process gives."""
    checks.check_evaluation(trained, Parted(), 3)


def test_resumes_on_nodes(trained):
    """A program on three nodes goes on inside an epoch, dropout included, and from a single device's checkpoint."""
    checks.write_single_checkpoint(trained, Parted("adamw"))
    checks.run_on_nodes("rpc", 3, 3, trained, "resume")
    checks.check_resumed(trained, 3, "parts")


def test_main_ranks_share_parts(tmp_path):
    """Two ranks that run the loop train one part together, as one process on both their batches."""
    checks.run_job("rpc", 3, tmp_path, "share")
    checks.check_weights(tmp_path, "clipped", SHARED["clipped"])
    checks.check_metrics(tmp_path, "clipped", SHARED["clipped"], 3, replicas=2)


def test_part_that_raises(tmp_path):
    """A part that raises on a worker ends the run soon, and its own traceback comes first."""
    checks.check_failure(tmp_path, "rpc", 3, bad=2)


def test_peer_that_never_starts(tmp_path):
    """A rank that never comes to the start is named after start_timeout, and nothing waits for it at the end."""
    checks.check_absent(tmp_path, "rpc", 3)


def test_rank_that_does_not_come_to_the_end(tmp_path):
    """Leaving the RPC world waits for a rank that stays away no longer than a limit, and says which one it was."""
    checks.check_lingering(tmp_path, "rpc", 3)
