"""The names of `import autofl as fl`: the same in every list of them, and each with a type that an editor can show."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autofl

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "autofl"
NOTEBOOK = ROOT / "examples" / "compare_your_algorithm.ipynb"


def imported_for_types() -> dict[str, str]:
    """The names that `__init__.py` imports for type checkers alone, each with its module."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


def test_the_three_lists_of_public_names_are_one():
    assert imported_for_types() == autofl._MODULES
    assert autofl.__all__ == ["__version__", *autofl._MODULES]
    assert len(set(autofl.__all__)) == len(autofl.__all__)


def test_each_public_name_is_there():
    for name, module in autofl._MODULES.items():
        assert getattr(sys.modules.get(module) or __import__(module, fromlist=[name]), name) is not None, name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        autofl.Nothing  # noqa: B018


def notebook_with_types() -> str:
    """The notebook, and at its end a question for the type of everything it uses of AutoFL and everything it makes."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    tree = ast.parse(text)
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_public(node)}
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    made = {target.id for target in targets if isinstance(target, ast.Name)}
    assert {"fl.Arm", "fl.compare", "cell", "data", "arms", "runs"} <= used | made
    questions = "".join(f"reveal_type({name})\n" for name in sorted(used | made))
    return f"{text}\n{questions}reveal_type(runs.table())\nreveal_type(runs.plot())\nreveal_type(runs[0])\n"


def _is_public(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "fl"


def test_every_public_name_has_a_type(tmp_path):
    """mypy --strict finds no error, and no name that is `Any` itself; `Any` inside a type, as NumPy has, is fine."""
    pytest.importorskip("mypy", reason="needs the extra dev")
    names = "".join(f"reveal_type(fl.{name})\n" for name in autofl.__all__)
    pages = {"names.py": f"import autofl as fl\n\n{names}", "notebook_with_types.py": notebook_with_types()}
    for file, text in pages.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    examples = sorted(str(path) for path in (ROOT / "examples").glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *(str(tmp_path / file) for file in pages), *examples],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ": error:" not in done.stdout, done.stdout
    assert not done.stderr
    types = re.findall(r'^(.*?):(\d+): note: Revealed type is "(.*)"$', done.stdout, flags=re.MULTILINE)
    assert len(types) == sum(text.count("reveal_type(") for text in pages.values())
    untyped = [f"{Path(file).name}:{line}" for file, line, found in types if found == "Any"]
    assert not untyped, "Any, as far as mypy knows: " + ", ".join(untyped)
