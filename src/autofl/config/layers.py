"""Tables of settings on top of each other: defaults, a scenario, an arm, a user's file, --set."""

from typing import Any

from autofl.config.arms import USUAL, settings_of
from autofl.config.parts import SECTIONS
from autofl.config.scenarios import read_scenario
from autofl.errors import AutoFLError
from autofl.registry import find

Table = dict[str, Any]


def layered(said: Table) -> Table:
    """What a user has said, on top of the arm and the scenario that it names."""
    return on_top(on_top(_scenario(said), arm_below(said)), said)


def arm_below(said: Table) -> Table:
    """The settings of the arm that is named, as far as they are used under what else is said."""
    arm = settings_of(said.get("arm", USUAL))
    table = on_top(on_top(_scenario(said), arm), said)

    # Whoever plans jointly sends and learns as AutoFL-J does.
    is_joint = sections(table).get("planner", {}).get("name", _usual("planner")) == "joint"
    if is_joint:
        arm = on_top(settings_of("autofl-j"), arm)

    # A message down is made smaller where it takes time, and where somebody says by how much.
    takes_time = sections(table).get("cell", {}).get("downlink_power") is not None
    if not takes_time or not (is_joint or "bits" in arm.get("downlink", {})):
        arm.pop("downlink", None)
    return arm


def on_top(below: Table, above: Table) -> Table:
    """One table over another: key by key within a section."""
    merged = {**below, **above}
    lower = sections(below)
    upper = sections(above)
    for name in lower.keys() & upper.keys():
        merged[name] = {**lower[name], **upper[name]}
    without_settings_of_replaced_parts(
        merged, lower, {f"{name}.{key}" for name, values in upper.items() for key in values}
    )
    if "positions" in upper.get("cell", {}) and "distance" not in upper["cell"]:
        merged["cell"].pop("distance", None)  # the places above, not the drop below
    return merged


def sections(table: Table) -> dict[str, Table]:
    """The sections of a table, copied; what is a plain value is left out."""
    return {name: dict(value) for name, value in table.items() if isinstance(value, dict)}


def without_settings_of_replaced_parts(
    table: Table, below: dict[str, Table], said: set[str]
) -> None:
    """Where the upper table names another part, drop what the lower one sets for the old part alone.

    Args:
        table: both together; below: what lay below; said: "section.key" of what lies on top.
    """
    for section in SECTIONS:
        old = below.get(section, {})
        new = table.get(section)
        if not old or not isinstance(new, dict):
            continue
        before, after = (values.get("name", _usual(section)) for values in (old, new))
        if before == after or not (isinstance(before, str) and isinstance(after, str)):
            continue  # the validation reports what is no text
        try:
            gone = _keys(section, before) - _keys(section, after)
        except AutoFLError:
            continue  # the validation reports an unknown name
        for key in old.keys() & gone:
            if f"{section}.{key}" not in said:
                del new[key]


def _keys(section: str, name: str) -> set[str]:
    """The settings of a part that a section names."""
    return set() if name in ("none", "auto") else {*find(SECTIONS[section].kind, name).settings}


def _usual(section: str) -> str:
    """The part that a section names unless another is named."""
    return str(SECTIONS[section].model_fields["name"].default)


def _scenario(said: Table) -> Table:
    name = said.get("scenario")
    return {} if name is None else read_scenario(name)
