"""Every name says what it holds; the words below are those of a hand that is still thinking (STYLE,
"Words").
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import autofl
import autofl_paper

PLACEHOLDERS = {"found", "each", "numbers", "taken", "alike", "now"}
PACKAGES = [Path(package.__file__).parent for package in (autofl, autofl_paper)]


def bound_names(node: ast.AST) -> list[str | None]:
    """The names that a node binds: variables, fields, parameters, functions, classes, imports,
    handlers, patterns.
    """
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store())
            | ast.Attribute(attr=name, ctx=ast.Store())
            | ast.arg(arg=name)
        ):
            return [name]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ExceptHandler():
            return [node.name]
        case ast.MatchAs() | ast.MatchStar():
            return [node.name]
        case ast.MatchMapping():
            return [node.rest]
        case ast.alias():
            return [node.asname or node.name]
        case _:
            return []


def offenders(source: str, where: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in PLACEHOLDERS.intersection(bound_names(node)):
            yield f"{where}:{getattr(node, 'lineno', 0)}: {name}"


def test_no_name_in_the_packages_is_a_placeholder():
    paths = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    assert paths
    wrong = [
        line
        for path in paths
        for line in offenders(path.read_text(), str(path.relative_to(PACKAGES[0].parent)))
    ]
    assert not wrong, "name these by what they hold:\n" + "\n".join(wrong)


def test_every_way_to_bind_a_placeholder_is_seen():
    lines = [
        "found = 1",
        "rows = [each for each in ()]",
        "def taken(now, *, alike=0): ...",
        "self.numbers = 1",
        "import os as found",
        "if (now := 1): ...",
        "class Field:",
        "    found: int = 0",
        "    def each(self): ...",
    ]
    seen = sorted(offenders("\n".join(lines), "x"), key=lambda line: int(line.split(":")[1]))
    numbers_of_lines = [int(line.split(":")[1]) for line in seen]
    assert numbers_of_lines == [1, 2, 3, 3, 3, 4, 5, 6, 8, 9]
