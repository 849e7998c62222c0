"""Scenarios that come with the package: settings of a cell and its radio, a TOML file each in
`scenarios/`.
"""

import difflib
from pathlib import Path
from typing import Any

from autofl.errors import AutoFLError
from autofl.files import read_toml

FOLDER = Path(__file__).parents[1] / "scenarios"


def scenario_names() -> list[str]:
    """All of them, the paper's cell first."""
    return sorted(
        (path.stem for path in FOLDER.glob("*.toml")), key=lambda name: (name != "paper", name)
    )


def read_scenario(name: str) -> dict[str, Any]:
    """The settings of a scenario as a nested table."""
    return read_toml(_path(name))


def scenario_line(name: str) -> str:
    """What it is, in one line: the comment its file begins with."""
    return _path(name).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def _path(name: str) -> Path:
    names = scenario_names()
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
        raise AutoFLError(
            f"scenario {name!r} is unknown; the nearest is {nearest!r} (autofl list scenarios lists them)"
        )
    return FOLDER / f"{name}.toml"
