"""The names of `import autofl as fl`: the same in every list of them, and each with a type that an
editor can show.
"""

import ast
import dataclasses
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autofl

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "autofl"
NOTEBOOK = ROOT / "examples" / "compare_your_algorithm.ipynb"


def imported_for_types() -> dict[str, str]:
    """The names that `__init__.py` imports for type checkers alone, each with its module."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    blocks = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: node.module or "" for node in imports for alias in node.names
    }


def test_the_three_lists_of_public_names_are_one():
    assert imported_for_types() == autofl._MODULES
    assert autofl.__all__ == ["__version__", *autofl._MODULES]
    assert len(set(autofl.__all__)) == len(autofl.__all__)


def test_each_public_name_has_an_example_and_no_example_needs_another_name():
    """`test_site.py` runs the examples of this page."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = page.partition("## What comes back")[0].split("\n::: ")[1:]
    examples = {}
    for entry in named:
        (code,) = re.findall(r"^```python\n(.*?)^```", entry, re.MULTILINE | re.DOTALL)
        examples[entry.split()[0].rpartition(".")[2]] = code
    # Laws of a partition are classes, by whose settings a user calls them.
    calls = {"ByLabels": "by_labels", "Dirichlet": "dirichlet", "Iid": "iid"}
    shown = {calls.get(name, name): code for name, code in examples.items()}
    assert shown.keys() == set(autofl._MODULES)
    for name, code in shown.items():
        assert re.search(rf"\bfl\.{name}\b", code), name
        assert set(re.findall(r"\bfl\.(\w+)", code)) <= set(autofl._MODULES), name


def test_each_public_name_is_there():
    for name, module in autofl._MODULES.items():
        assert (
            getattr(sys.modules.get(module) or __import__(module, fromlist=[name]), name)
            is not None
        ), name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        autofl.Nothing  # noqa: B018


def notebook_with_types() -> str:
    """The notebook, and at its end a question for the type of everything it uses of AutoFL and
    everything it makes.
    """
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    tree = ast.parse(text)
    used = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and _is_public(node)
    }
    targets = [
        target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
    ]
    made = {target.id for target in targets if isinstance(target, ast.Name)}
    assert {"fl.Arm", "fl.compare", "cell", "data", "arms", "runs"} <= used | made
    questions = "".join(f"reveal_type({name})\n" for name in sorted(used | made))
    return f"{text}\n{questions}reveal_type(runs.table())\nreveal_type(runs.plot())\nreveal_type(runs[0])\n"


def _is_public(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "fl"


LISTS = """
import autofl as fl
import numpy as np

cell = fl.Cell([50, 100.0, 150], max_energy=[1e-3, 2e-3, 3e-3], data_size=2000, max_power=np.full(3, 0.01))
disc = fl.Cell.disc(3, max_energy=[1e-3, 2e-3, 3e-3], data_size=2000, tries=2, downlink_power=None)
plan = fl.make_plan(cell.take([0, 2]), num_samples=[10, 20], tx_power=0.01, weight=[1, 2], feasible=[True, False])
arrives = fl.success_probability(cell, fl.PathLoss(fl.NoFading()), [0.01, 0.005, 0.01])
near = cell.distance < 120.0
reveal_type(cell.distance)
reveal_type(disc.max_energy)
reveal_type(near)
"""
"""What a user writes, with numbers and lists where the code takes arrays over the UEs."""


def test_what_a_user_gives_as_lists_comes_out_as_arrays():
    names: dict[str, Any] = {}
    exec(LISTS.replace("reveal_type", "type"), names)
    assert [names["cell"].distance.tolist(), names["disc"].data_size.tolist()] == [
        [50, 100, 150],
        [2000] * 3,
    ]
    assert names["plan"].num_samples.tolist() == [10, 0]
    assert names["plan"].feasible.tolist() == [True, False]
    assert names["arrives"].shape == (3,)


@pytest.mark.slow
def test_every_public_name_has_a_type(tmp_path):
    """mypy --strict finds no error, and no name that is `Any` itself; `Any` inside a type, as NumPy
    has, is fine.
    """
    pytest.importorskip("mypy", reason="needs the extra dev")
    names = "".join(f"reveal_type(fl.{name})\n" for name in autofl.__all__)
    pages = {
        "names.py": f"import autofl as fl\n\n{names}",
        "notebook_with_types.py": notebook_with_types(),
        "lists.py": LISTS,
    }
    for file, text in pages.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    examples = sorted(str(path) for path in (ROOT / "examples").glob("*.py"))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            *(str(tmp_path / file) for file in pages),
            *examples,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ": error:" not in done.stdout, done.stdout
    assert not done.stderr
    types = re.findall(
        r'^(.*?):(\d+): note: Revealed type is "(.*)"$', done.stdout, flags=re.MULTILINE
    )
    assert len(types) == sum(text.count("reveal_type(") for text in pages.values())
    untyped = [f"{Path(file).name}:{line}" for file, line, found in types if found == "Any"]
    assert not untyped, "Any, as far as mypy knows: " + ", ".join(untyped)


def test_the_reference_says_of_every_field_of_a_cell_what_it_is():
    """The page shows the docstring; a number with a unit says its unit, in brackets."""
    told = dict(
        re.findall(
            r"^    (\w+): (.+)$", inspect.cleandoc(autofl.Cell.__doc__ or ""), flags=re.MULTILINE
        )
    )
    assert list(told) == [field.name for field in dataclasses.fields(autofl.Cell)]
    assert "::: autofl.network.Cell" in (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sum(bool(re.search(r"\[[\w/ ^]+\]", words)) for words in told.values()) >= 17
