"""Arms: what is compared, an algorithm and the settings that go with it, a TOML file each.

Ours are in `arms/`. A user's own is a file too, or an algorithm by its name, which the default
planner then plans for.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from autofl.errors import AutoFLError
from autofl.files import read_toml
from autofl.registry import PARTS, check_name, label_of

FOLDER = Path(__file__).parents[1] / "arms"
USUAL = "autofl"
"""The arm of settings that name none."""
ABOUT = ("name", "title", "algorithm")
"""Keys of an arm that are no settings."""
Arm = str | dict[str, Any]
"""As settings hold it: a name, or what stood in a user's file, so that nothing needs the file again."""


@cache
def arm_names() -> list[str]:
    """All that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def _ours(name: str) -> dict[str, Any]:
    return {"name": name, **read_toml(FOLDER / f"{name}.toml")}


def read_arm(arm: str | Mapping[str, Any]) -> dict[str, Any]:
    """An arm as a nested table: its name, its title, its algorithm, and settings."""
    if not isinstance(arm, str):
        table = deepcopy(dict(arm))
        table.setdefault("name", table.get("title"))
    elif arm.endswith(".toml"):
        table = {"name": Path(arm).stem, **read_toml(arm)}
    elif arm in arm_names():
        return deepcopy(_ours(arm))
    elif ":" in arm or arm in PARTS["algorithm"]:
        return {"name": arm, "algorithm": arm}
    else:
        known = ", ".join(dict.fromkeys((*arm_names(), *PARTS["algorithm"])))
        raise AutoFLError(
            f"arm {arm!r} is unknown; there are {known}, a file of your own (.toml), or your own"
            " algorithm as module:object"
        )
    for key in ("name", "algorithm"):
        if not isinstance(table.get(key), str):
            raise AutoFLError(
                f"arm {table.get('name') or arm}: it needs a title and an algorithm, such as"
                ' title = "Mine" and algorithm = "fedavg"'
            )
    for key in ("arm", "compare", "seed"):
        if key in table:
            raise AutoFLError(f"arm {table['name']}: {key} is no setting of an arm")
    check_name("algorithm", table["algorithm"])
    return table


def name_of_arm(arm: Arm) -> str:
    """What a folder or a column calls it."""
    return arm if isinstance(arm, str) else str(read_arm(arm)["name"])


def title_of(arm: Arm) -> str:
    """What a table calls it."""
    table = read_arm(arm)
    return str(table.get("title") or label_of("algorithm", table["algorithm"]))


def settings_of(arm: Arm) -> dict[str, Any]:
    """The settings that go with an arm, as a nested table."""
    return {key: value for key, value in read_arm(arm).items() if key not in ABOUT}


def with_files_read(table: dict[str, Any]) -> dict[str, Any]:
    """Settings with the arms that are files as tables, for whoever has to see all that is named."""
    table = dict(table)
    if "arm" in table:
        table["arm"] = _read_if_a_file(table["arm"])
    compare = table.get("compare")
    if isinstance(compare, dict) and isinstance(compare.get("arms"), list):
        table["compare"] = {**compare, "arms": [_read_if_a_file(arm) for arm in compare["arms"]]}
    return table


def _read_if_a_file(arm: Any) -> Any:
    return read_arm(arm) if isinstance(arm, str) and arm.endswith(".toml") else arm
