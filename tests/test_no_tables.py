"""What is decided by the name of a data set: Table I of the paper, sizes of models, and nothing
else.
"""

import ast
from pathlib import Path

import pytest

import autofl
from autofl.registry import PARTS

SRC = Path(autofl.__file__).parent
ALLOWED = {
    ("config/settings.py", "TABLE_I"),
    ("config/settings.py", "MODEL_WEIGHTS"),
    ("registry.py", "PARTS"),
}


def keys_by_data_set(tree: ast.AST) -> list[ast.expr]:
    """Keys that are, or hold, the name of a data set, and have numbers as their values; names and
    files are words.
    """
    pairs = [
        pair
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for pair in zip(node.keys, node.values, strict=True)
    ]
    pairs += [(node.key, node.value) for node in ast.walk(tree) if isinstance(node, ast.DictComp)]
    names = set(PARTS["data"]) - {"npz"}
    return [
        key
        for key, value in pairs
        if key is not None
        and any(isinstance(part, ast.Constant) and part.value in names for part in ast.walk(key))
        and any(
            isinstance(part, ast.Constant) and isinstance(part.value, int | float)
            for part in ast.walk(value)
        )
    ]


def tables(path: Path) -> list[tuple[str, int]]:
    """Name and line of each statement with such a table."""
    found = []
    for statement in ast.parse(path.read_text()).body:
        target = (
            statement.targets[0]
            if isinstance(statement, ast.Assign)
            else getattr(statement, "target", None)
        )
        found += [
            (target.id if isinstance(target, ast.Name) else "", key.lineno)
            for key in keys_by_data_set(statement)
        ]
    return found


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(SRC.rglob("*.py")) if path.relative_to(SRC).parts[0] != "data"],
    ids=lambda path: str(path.relative_to(SRC)),
)
def test_no_table_goes_by_the_name_of_a_data_set(path):
    where = path.relative_to(SRC).as_posix()
    assert [(where, *one) for one in tables(path) if (where, one[0]) not in ALLOWED] == []


def test_the_search_finds_such_a_table():
    tree = ast.parse(
        'SAMPLES = {"cifar10": (20, 50)}; STEPS = {("mlp", "mnist"): 1}; FINE = {"mean": "mnist", "mnist": "MNIST"}'
    )
    assert len(keys_by_data_set(tree)) == 2
