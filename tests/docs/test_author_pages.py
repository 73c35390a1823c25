"""The pages for plugin authors: generated ones are up to date, and the packages they show install and train."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILES = re.compile(r"```\w+ title=(\S+)\n(.*?)```", re.DOTALL)

TRAIN = """
import sys
import torch
from core import Module, Trainer
class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
if __name__ == "__main__":
    settings = eval(sys.argv[1])
    trainer = Trainer(**{"accelerator": "cpu", **settings}, max_epochs=1, logger=False, enable_checkpointing=False)
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2))
    print("steps", trainer.global_step, flush=True)
"""


def test_generated_pages_say_what_the_code_says():
    """The pages of tokens and hooks are what the script writes, so every exact signature stands in the docs."""
    command = [sys.executable, ROOT / "scripts" / "make_docs.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + "\nrun: python scripts/make_docs.py"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("page", "name", "settings"),
    [
        ("write-a-strategy.md", "noisy_ddp", {"strategy": "noisy_ddp", "devices": 2}),
        ("write-an-accelerator.md", "slow_cpu", {"accelerator": "slow_cpu"}),
        ("write-a-precision.md", "bf16-forward", {"precision": "bf16-forward"}),
    ],
)
def test_the_package_of_the_page_installs_and_trains(tmp_path, page, name, settings):
    """The files of the page, built and installed by pip, are listed and train by name."""
    source, site = tmp_path / "source", tmp_path / "site"
    for path, text in FILES.findall((DOCS / page).read_text()):
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    install = [*(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"), "--no-build-isolation"]
    subprocess.run([*install, "--target", site, source], check=True, timeout=100, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    listed = [sys.executable, "-m", "core.registry", "list"]
    assert name in subprocess.run(listed, env=environment, capture_output=True, text=True, timeout=60).stdout
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = subprocess.run(
        [sys.executable, script, repr(settings)], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert f"steps {2 if settings.get('devices') else 4}" in done.stdout
