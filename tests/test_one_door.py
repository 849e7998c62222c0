"""Files are written by `autofl.files` alone, which follows no link."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
OWN_PLACES = {"autofl/files.py", "autofl/data"}
"""The door itself and the cache of data sets, which is the user's own, never a folder of runs or of
a deployment.
"""
WRITING = {"write_text", "write_bytes", "truncate", "savetxt", "touch"}


def writes(call: ast.Call) -> bool:
    """Whether a call opens or writes a file by its name."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "open":
        modes = [
            word.value
            for word in (*call.args, *(key.value for key in call.keywords))
            if is_text(word)
        ]
        return any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes)
    owner = getattr(getattr(call.func, "value", None), "id", "")
    return name in WRITING and owner not in ("log", "file")  # which are open already


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value)


def test_nothing_but_one_module_opens_files_for_writing():
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        if "/".join(path.relative_to(SOURCE).parts[:2]) not in OWN_PLACES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and writes(node)
    ]
    assert not found
