"""What the core may know, and what it may import."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from core.discovery import scan
from core.vocabulary import VOCABULARY

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "core").rglob("*.py"))
OWN = [item for item in scan() if item.builtin]
# a token may be called as a plugin is: it is a word of the vocabulary, and names no plugin
OWN_NAMES = {item.name for item in OWN} - set(VOCABULARY)
LONGEST_FILE = 400


def relative(path):
    return str(path.relative_to(ROOT))


def strings(tree):
    """Yield every string of a module but its docstrings and the strings that stand as comments of constants."""
    spoken = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken:
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_core_knows_no_plugin(path):
    """No module of the core imports a built-in plugin or has its name in a string."""
    tree = ast.parse(path.read_text())
    assert OWN_NAMES
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.split(".")[0] == "builtin_plugins" for name in names), f"line {node.lineno}"
    for node in strings(tree):
        assert node.value not in OWN_NAMES, f"line {node.lineno}: {node.value!r}"
        assert "builtin_plugins" not in node.value, f"line {node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_files_stay_small(path):
    """A module of the core stays under 400 lines, so that it can be read in one go."""
    assert len(path.read_text().splitlines()) < LONGEST_FILE


FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in [*SOURCES, *(ROOT / "builtin_plugins").rglob("*.py")]
}


def imports(node):
    """Return the modules of ours that ``node`` imports when it runs, at the top or inside functions."""
    found = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        elif isinstance(child, ast.ImportFrom) and child.module:
            found |= {f"{child.module}.{alias.name}" for alias in child.names} & FILES.keys() or {child.module}
        found |= imports(child)
    return found & FILES.keys()


def test_no_circles():
    """No file needs itself by way of others, imports inside functions counted: it can be read from the bottom up."""
    graph = {name: imports(ast.parse(path.read_text())) - {name} for name, path in FILES.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"these import each other: {' -> '.join(error.args[1])}")
    assert order.index("core.errors") < order.index("core.trainer")


QUIET = "import sys; before = set(sys.modules); {code}; print(sorted({{'torch', 'rich', 'numpy'}} & set(sys.modules)))"


@pytest.mark.parametrize(
    "code",
    [
        "import core",
        "import core.registry",
        "from core import get_registry; get_registry()",
        "from core.cli import main; main(['list'])",
        "from core.cli import main; main(['list', '--json', '--kind', 'strategy'])",
        "from core.cli import main; main(['explain', '--devices', '2'])",
        "from core.cli import main; main(['explain', '--precision', 'no-such'])",
        "from core.cli import main; main(['matrix', '--format', 'html'])",
        "from core.cli import main; main(['doctor'])",
        "from core.cli import main; main(['--help'])",
    ],
)
def test_looking_imports_no_torch(site, code):
    """Importing the core and every command of the command line leave torch, numpy and rich alone."""
    done = site.run("-c", QUIET.format(code=code))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


IMPORTING = """
import gc, core, torch
before = [each["collections"] for each in gc.get_stats()]
from core import Trainer
assert [each["collections"] for each in gc.get_stats()][2] == before[2]
assert gc.isenabled()
gc.disable()
from core import CombinedLoader
assert not gc.isenabled()
"""


def test_importing_the_trainer_collects_no_garbage(site):
    """Importing the Trainer does not make the collector look through all of torch, and leaves it as it was."""
    done = site.run("-c", IMPORTING)
    assert done.returncode == 0, done.stderr


def test_declarations_of_built_ins_import_no_torch(site):
    """Reading the declarations of the built-in plugins imports no torch."""
    modules = [item.value.partition(":")[0] for item in OWN]
    done = site.run("-c", QUIET.format(code=f"import {', '.join(modules)}"))
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


def test_list_survives_a_plugin_that_imports_torch(site):
    """A third party's declaration that imports torch makes list slower and nothing else."""
    site.plugin("acme", "strategy", "ring", before="import torch")
    done = site.run("-m", "core.registry", "list", "--kind", "strategy")
    assert done.returncode == 0
    assert "ring" in done.stdout


def test_one_registry_behind_the_command(site):
    """A plugin that imports the registry while the command runs meets the one that the command uses."""
    site.plugin(
        "acme",
        "strategy",
        "ring",
        before="import sys, core.registry as r; assert type(r.get_registry).__name__; assert '__main__' in sys.modules",
    )
    done = site.run("-W", "error", "-m", "core.registry", "list", "--strict")
    assert done.returncode == 0, done.stderr
    assert "ready" in done.stdout
