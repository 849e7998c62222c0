"""One direction of imports: each row may import from the rows above it, and within a row from the
left.
"""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autofl.registry import PARTS

TESTS = Path(__file__).parent
ROOT = Path(__file__).parents[1] / "src" / "autofl"
ROWS = [
    ["version", "errors", "units", "rng", "ranges", "registry", "files", "lock"],
    ["quality", "results"],
    ["network"],
    ["channels", "selection", "compressors"],
    ["planner"],
    ["data", "models", "algorithms"],
    ["engines"],
    ["robust", "evaluation"],
    ["core"],
    ["records"],
    ["config", "experiments"],
    ["jobs"],
    ["forecast", "report", "api"],
    ["deploy", "explore"],  # deploy may not know the world of a simulation
    ["cli"],
]
RANK = {name: (row, place) for row, names in enumerate(ROWS) for place, name in enumerate(names)}
THIRD_PARTY = {
    "network": {"numpy"},
    "channels": {"numpy"},
    "selection": {"numpy"},
    "compressors": {"numpy", "torch"},  # torch inside functions only, see below
    "planner": {"numpy"},
    "records": {"numpy", "safetensors"},
    "data": {"numpy", "torch", "pooch"},
    "models": {"numpy", "torch"},
    "algorithms": {"numpy", "torch"},
    "engines": {"numpy", "torch"},
    "robust": {"numpy", "torch"},
    "evaluation": {"numpy", "scipy", "torch"},
    "core": {"numpy", "torch"},
    "quality": {"numpy", "scipy"},
    "results": {"numpy"},
    "deploy": {
        "numpy",
        "torch",
        "pydantic",
        "flwr",
        "grpc",
        "cryptography",
        "filelock",
        "psutil",
        "tomli_w",
    },
}


def test_the_architecture_draws_these_rows():
    """The text, and the drawings that are made from it."""
    tools = ROOT.parents[1] / "tools" / "drawings.py"
    spec = importlib.util.spec_from_file_location("drawings", tools)
    assert spec is not None
    assert spec.loader is not None
    drawings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawings)

    page = (drawings.DOCS / "architecture.md").read_text(encoding="utf-8")
    assert [names for names, _ in drawings.rooms_of(page)] == ROWS
    for name, drawn in (("rooms", drawings.draw_rooms(page)), ("round", drawings.draw_round())):
        assert (drawings.DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8") == drawn
    files = {file for steps in (drawings.DECIDED, drawings.LEARNED) for *_, file in steps}
    assert all((ROOT / file).exists() for file in files)


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
            world_here = ("autofl.core.simulation", "autofl.core.together")
            assert own != "deploy" or name not in world_here


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if part_of(path) in THIRD_PARTY], ids=lambda p: p.stem
)
def test_the_core_needs_numpy_scipy_and_torch_only(path):
    outside = (
        {name.split(".")[0] for name in imports_of(path)}
        - set(sys.stdlib_module_names)
        - {"autofl"}
    )
    assert outside <= THIRD_PARTY[part_of(path)]


def test_the_library_knows_nothing_of_the_paper_s_studies():
    """They are another package, whose commands are entry points."""
    studies = ROOT.parent / "autofl_paper"
    assert all(".cli" not in name for path in studies.glob("*.py") for name in imports_of(path))
    assert not [
        path
        for path in sorted(ROOT.rglob("*.py"))
        if any(name.split(".")[0] == "autofl_paper" for name in imports_of(path))
    ]


@pytest.mark.slow
def test_our_own_commands_start_without_those_of_the_studies():
    code = (
        "import sys; from autofl.cli.main import run; run(['plan']);"
        "print(*(name for name in sys.modules if name.startswith('autofl_paper')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "autofl_paper" not in done.stderr


def loaded_by(*modules: str) -> set[str]:
    """What a fresh interpreter has loaded after importing these."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        *(
            "autofl.network",
            "autofl.forecast.participation",
            "autofl.channels",
            "autofl.selection",
            "autofl.compressors",
        ),
        *("autofl.planner", "autofl.records", "autofl.core.decide", "autofl.core.horizon"),
    ],
)
def test_the_networks_side_of_a_round_loads_neither_torch_nor_scipy(module):
    assert not {"torch", "scipy", "matplotlib"} & loaded_by(module)


@pytest.mark.slow
def test_every_part_that_planning_may_name_loads_no_torch():
    kinds = ("planner", "channel", "selection", "compressor")
    modules = {entry.target.partition(":")[0] for kind in kinds for entry in PARTS[kind].values()}
    assert len(modules) >= 6
    assert "torch" not in loaded_by(*sorted(modules))


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS["planner"])
def test_planning_loads_neither_torch_nor_scipy(name):
    code = (
        f"import sys, autofl; overrides = ['planner.name={name}', 'compressor.name=quantise'];"
        "autofl.plan(autofl.load_settings(overrides=overrides)).table();"
        "print([name for name in ('torch', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_simulation_needs_no_settings_library_and_no_command_line():
    code = (
        "import sys, autofl.core.simulation, autofl.evaluation;"
        "print([name for name in ('pydantic', 'typer', 'rich', 'matplotlib', 'pooch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_folders_of_tests_are_the_rooms_they_test():
    """But for three: promises to all parts, slow versions of fast code, and faults of all rooms."""
    studies = ROOT.parent / "autofl_paper"
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")} - {Path()}
    rooms = {path.parent.relative_to(ROOT) for path in ROOT.rglob("*.py")}
    rooms |= {"paper" / path.parent.relative_to(studies) for path in studies.rglob("*.py")}
    of_all = {"contracts", "reference", "faults"}
    assert {folder for folder in folders - rooms if folder.parts[0] not in of_all} == set()


NOT_BY_MAKE_TEST = {
    **dict.fromkeys(("autofl.deploy", "flwr", "grpc", "cryptography"), "flwr"),
    **dict.fromkeys(("autofl.explore", "fastapi", "uvicorn"), "fastapi"),
    **dict.fromkeys(("hypothesis", "schemathesis"), "schemathesis"),
    **{
        name: name
        for name in ("cvxpy", "httpx", "mlflow", "playwright", "ray", "sionna", "yaml", "zensical")
    },
}
"""What a test imports of the extras that `make test` does not install, and the package without
which it is skipped.
"""


def imports_without_a_skip(body: list[ast.stmt], told: frozenset[str] = frozenset()) -> set[str]:
    """What these statements import before a line that skips the test where it is missing."""
    missing: set[str] = set()
    for statement in body:
        told |= set(re.findall(r"^(?:\w+ = )?pytest.importorskip\('(\w+)", ast.unparse(statement)))
        names = (
            [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
        )
        names += [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
        for name in names:
            missing |= {
                f"{name} needs {of}"
                for own, of in NOT_BY_MAKE_TEST.items()
                if f"{name}.".startswith(f"{own}.")
            }
        missing |= imports_without_a_skip(getattr(statement, "body", []), told)
    return {line for line in missing if line.split()[-1] not in told}


def test_a_test_that_imports_what_make_test_does_not_install_is_skipped_without_it():
    trees = {
        str(path): ast.parse(path.read_text("utf-8")) for path in sorted(TESTS.rglob("test_*.py"))
    }
    assert {
        name: missing
        for name, tree in trees.items()
        if (missing := imports_without_a_skip(tree.body))
    } == {}
    skips = [re.findall(r"importorskip\((.*)\)", ast.unparse(tree)) for tree in trees.values()]
    assert {"flwr", "fastapi"} <= {words.split("'")[1] for lines in skips for words in lines}
    assert not [words for lines in skips for words in lines if "reason='needs " not in words]
