"""One direction of imports: each row may import from the rows above it, and within a row from the left."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "autofl"
ROWS = [
    ["version", "errors", "units", "rng", "records"],
    ["network", "theory"],
    ["planner"],
    ["data", "models", "algorithms", "evaluation"],
    ["rounds"],
    ["simulation"],
    ["deploy"],  # beside simulation: neither may know the other
    ["config", "experiments", "report", "cli"],
]
RANK = {name: (row, place) for row, names in enumerate(ROWS) for place, name in enumerate(names)}
THIRD_PARTY = {
    "network": {"numpy"},
    "theory": {"numpy"},
    "planner": {"numpy"},
    "records": {"numpy", "scipy", "safetensors"},
    "data": {"numpy", "torch", "pooch"},
    "models": {"numpy", "torch"},
    "algorithms": {"numpy", "torch"},
    "evaluation": {"numpy", "scipy", "torch"},
    "rounds": {"numpy", "torch"},
    "simulation": {"numpy", "torch"},
    "deploy": {"numpy", "torch", "flwr", "cryptography"},
}


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


SOURCES = [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT or path.stem in RANK]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_row_imports_only_from_above(path):
    own = part_of(path)
    for name in imports_of(path):
        if name.startswith("autofl"):
            other = name.split(".")[1]
            assert other == own or RANK[other] < RANK[own], f"{own} must not import {other}"
            assert {own, other} != {"simulation", "deploy"}


@pytest.mark.parametrize("path", [path for path in SOURCES if part_of(path) in THIRD_PARTY], ids=lambda p: p.stem)
def test_the_core_needs_numpy_scipy_and_torch_only(path):
    outside = {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names) - {"autofl"}
    assert outside <= THIRD_PARTY[part_of(path)]


def test_planning_loads_neither_torch_nor_scipy():
    code = (
        "import sys, autofl; autofl.plan(autofl.load_settings(), 'exact').table();"
        "print([name for name in ('torch', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_simulation_needs_no_settings_library_and_no_command_line():
    code = (
        "import sys, autofl.simulation, autofl.evaluation;"
        "print([name for name in ('pydantic', 'typer', 'rich', 'matplotlib', 'pooch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
