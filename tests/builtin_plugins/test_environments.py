"""Launchers by the variables that they set: each is recognised, each variable is read, contradictions are refused."""

from __future__ import annotations

import pytest

from core.environments import detect_environment
from core.errors import InvalidArgument, InvalidCombination
from core.registry import get_registry
from core.request import Request
from core.session import Ranks
from core.spellings import Devices

SLURM = {
    "SLURM_JOB_ID": "1234",
    "SLURM_JOB_NAME": "train",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NODELIST": "127.0.0.1,127.0.0.2",
}
MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "MASTER_ADDR": "first",
}
LSF = {
    "LSB_JOBID": "5678",
    "LSB_DJOB_RANKFILE": "ranks",
    "JSM_NAMESPACE_RANK": "3",
    "JSM_NAMESPACE_SIZE": "4",
    "JSM_NAMESPACE_LOCAL_RANK": "1",
    # jsrun stands on Open MPI and sets its variables too
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
}
KUBEFLOW = {
    "KUBERNETES_PORT": "tcp://10.0.0.1:443",
    "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456",
    "WORLD_SIZE": "4",
    "RANK": "3",
    "PET_NPROC_PER_NODE": "auto",
}
XLA = {
    "PJRT_LOCAL_PROCESS_COUNT": "2",
    "PJRT_LOCAL_PROCESS_RANK": "1",
    "TPU_WORKER_HOSTNAMES": "first,second",
    "TPU_WORKER_ID": "1",
}
LAUNCHERS = {"slurm": SLURM, "mpi": MPI, "lsf": LSF, "kubeflow": KUBEFLOW, "xla": XLA}
RANKS = {
    "slurm": Ranks(3, 1, 1, 4, 2),
    "mpi": Ranks(3, 1, 1, 4, 2),
    "lsf": Ranks(3, 1, 1, 4, 2),
    "kubeflow": Ranks(3, 0, 3, 4, 1),
    "xla": Ranks(3, 1, 1, 4, 2),
}
MEETING = {
    "slurm": ("127.0.0.1", 15000 + 1234 * 7),
    "mpi": ("first", 29500),
    "lsf": ("first", 10678),
    "kubeflow": ("job-master-0", 23456),
    "xla": ("first", 0),
}
SIZES = {
    "slurm": "SLURM_NTASKS=4",
    "mpi": "OMPI_COMM_WORLD_SIZE=4",
    "lsf": "JSM_NAMESPACE_SIZE=4",
    "kubeflow": "WORLD_SIZE=4",
    "xla": "PJRT_LOCAL_PROCESS_COUNT=2",
}


@pytest.fixture(autouse=True)
def rank_file(tmp_path, monkeypatch):
    """A folder with the rank file of a job on two hosts, two slots on each, submitted from a third."""
    (tmp_path / "ranks").write_text("batch\nfirst\nfirst\nsecond\nsecond\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launcher_is_recognised(name):
    """Its variables give the ranks, the meeting point, and the reason with the variable that it rests on."""
    found = detect_environment(LAUNCHERS[name])
    assert (found.name, found.ranks, (found.address, found.port)) == (name, RANKS[name], MEETING[name])
    assert found.tokens == ("launched.external", f"launched.{name}")
    assert SIZES[name] in found.reason


NEEDED = {
    "slurm": ("SLURM_JOB_ID", "SLURM_PROCID"),
    "mpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "lsf": tuple(name for name in LSF if not name.startswith("OMPI")),
    "kubeflow": ("KUBERNETES_PORT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"),
    "xla": ("PJRT_LOCAL_PROCESS_COUNT", "PJRT_LOCAL_PROCESS_RANK"),
}


@pytest.mark.parametrize(("name", "left_out"), [(name, each) for name, needed in NEEDED.items() for each in needed])
def test_part_of_the_variables_is_no_launcher(name, left_out):
    """Without one of the variables that it always sets, a launcher did not start this process."""
    rest = {each: value for each, value in LAUNCHERS[name].items() if each != left_out}
    if name == "lsf":
        rest = {each: value for each, value in rest.items() if not each.startswith("OMPI")}
    assert detect_environment(rest).ranks is None


WRONG = [
    ("slurm", {"SLURM_PROCID": "4"}, "SLURM_PROCID=4 and SLURM_NTASKS=4"),
    ("slurm", {"SLURM_NODEID": "2"}, "SLURM_NODEID=2 and SLURM_NNODES=2"),
    ("slurm", {"SLURM_NTASKS": "5"}, r"5 tasks \(SLURM_NTASKS\) on 2 nodes \(SLURM_NNODES\)"),
    ("slurm", {"SLURM_LOCALID": "one"}, "SLURM_LOCALID='one' is not a whole number"),
    ("slurm", {"MASTER_PORT": "high"}, "MASTER_PORT='high'"),
    ("mpi", {"OMPI_COMM_WORLD_RANK": "4"}, "OMPI_COMM_WORLD_RANK=4 and OMPI_COMM_WORLD_SIZE=4"),
    ("mpi", {"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, "OMPI_COMM_WORLD_LOCAL_RANK=2 and OMPI_COMM_WORLD_LOCAL_SIZE=2"),
    ("lsf", {"JSM_NAMESPACE_RANK": "-1"}, "JSM_NAMESPACE_RANK=-1 and JSM_NAMESPACE_SIZE=4"),
    ("lsf", {"JSM_NAMESPACE_LOCAL_RANK": "2"}, r"4 processes \(JSM_NAMESPACE_SIZE\) on the 2 hosts.*LOCAL_RANK=2"),
    ("lsf", {"LSB_DJOB_RANKFILE": "gone"}, "LSB_DJOB_RANKFILE='gone' cannot be read: No such file"),
    ("lsf", {"LSB_JOBID": "5678.1"}, "LSB_JOBID='5678.1'"),
    ("kubeflow", {"RANK": "4"}, "RANK=4 and WORLD_SIZE=4"),
    ("xla", {"PJRT_LOCAL_PROCESS_RANK": "2"}, "PJRT_LOCAL_PROCESS_RANK=2 and PJRT_LOCAL_PROCESS_COUNT=2"),
    ("xla", {"TPU_WORKER_ID": "2"}, "TPU_WORKER_ID=2 and the number of TPU_WORKER_HOSTNAMES=2"),
    ("kubeflow", {"PET_NPROC_PER_NODE": "2"}, r"2 processes \(PET_NPROC_PER_NODE\) of WORLD_SIZE=4"),
]


@pytest.mark.parametrize(("name", "wrong", "message"), WRONG)
def test_contradictions_are_refused(name, wrong, message):
    """Variables that contradict each other, or hold no number, are refused by name with what they hold."""
    with pytest.raises(InvalidArgument, match=message):
        detect_environment({**LAUNCHERS[name], **wrong})


def test_strategy_that_launches_is_refused_inside_a_launch():
    """Where the program has called torch_xla.launch itself, the strategy that does so is refused for that."""
    request = Request("xla", strategy="xla_spawn", devices=Devices(2), environment=detect_environment(XLA))
    with pytest.raises(InvalidCombination, match="the launcher has started the processes already"):
        get_registry().resolve(request)


def test_one_process_of_xla_is_no_launch():
    """The runtime sets its variables in a process alone, too."""
    assert detect_environment({"PJRT_LOCAL_PROCESS_COUNT": "1", "PJRT_LOCAL_PROCESS_RANK": "0"}).name == "none"


def test_mpi_on_several_hosts_asks_for_the_address():
    """mpirun does not say where rank 0 is: with processes elsewhere the error asks for MASTER_ADDR."""
    without = {name: value for name, value in MPI.items() if name != "MASTER_ADDR"}
    with pytest.raises(InvalidArgument, match=r"4 processes \(OMPI_COMM_WORLD_SIZE\), 2 of them here, and MASTER_ADDR"):
        detect_environment(without)
    assert detect_environment({**without, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}).address == "127.0.0.1"


def test_hosts_beyond_the_processes_of_lsf():
    """A job with more hosts than processes has one process on each host that takes part."""
    found = detect_environment(
        {**LSF, "JSM_NAMESPACE_SIZE": "1", "JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_LOCAL_RANK": "0"}
    )
    assert found.ranks == Ranks(0, 0, 0, 1, 1)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({**SLURM, "SLURM_JOB_NAME": "bash", "SLURM_PTY_PORT": "4242"}, "in a shell of SLURM job 1234"),
        ({**SLURM, "SLURM_JOB_NAME": "zsh", "SLURM_STEP_NUM_TASKS": "1"}, "in a shell of SLURM job 1234"),
        ({"SLURM_JOB_ID": "1234", "SLURM_JOB_NAME": "interactive"}, "in a shell of SLURM job 1234"),
        ({**SLURM, "SLURM_STEP_ID": "batch"}, "in the batch script of SLURM job 1234"),
        ({**SLURM, "SLURM_STEP_ID": "4294967290"}, "in the batch script of SLURM job 1234"),
        ({"KUBERNETES_PORT": "tcp://", "PET_NNODES": "2"}, r"in a pod of a Kubeflow job \(PET_NNODES=2\); torchrun"),
    ],
)
def test_around_but_not_the_start_of_this_process(variables, reason):
    """An interactive allocation, a batch script and a pod for torchrun are told apart, with what starts processes."""
    found = detect_environment(variables)
    assert (found.name, found.ranks, found.tokens) == ("none", None, ())
    assert found.reason.startswith(reason.replace("\\", ""))


@pytest.mark.parametrize(
    "names",
    [
        {"SLURM_JOB_NAME": "interactive"},
        {"SLURM_JOB_NAME": "interactive", "SLURM_PTY_PORT": "4242"},
        {"SLURM_JOB_NAME": "bash", "SLURM_PTY_PORT": "4242", "SLURM_STEP_ID": "1"},
        {"SLURM_JOB_NAME": "python", "SLURM_PTY_PORT": "4242"},
    ],
)
def test_srun_from_a_shell_starts_tasks(names):
    """What srun starts from a shell in an allocation are tasks, although the job has the shell's name."""
    found = detect_environment({**SLURM, **names})
    assert (found.name, found.ranks) == ("slurm", RANKS["slurm"])


@pytest.mark.parametrize("name", LAUNCHERS)
def test_other_numbers_in_the_request(name):
    """A request for another number of processes is refused at construction, with both numbers and the variable."""
    request = Request("cpu", strategy="ddp", devices=Devices(3), environment=detect_environment(LAUNCHERS[name]))
    with pytest.raises(InvalidCombination) as refused:
        get_registry().resolve(request)
    assert SIZES[name] in str(refused.value)
    assert "devices=3 x num_nodes=1 makes 3 processes" in str(refused.value)


def test_torchrun_inside_a_job_counts():
    """torchrun that was started in a job of a scheduler is the one that started this process."""
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}
    for launcher in LAUNCHERS.values():
        assert detect_environment({**launcher, **ranks, "TORCHELASTIC_RUN_ID": "x"}).name == "torchrun"
