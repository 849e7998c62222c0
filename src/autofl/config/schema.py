"""The settings as a JSON schema, with which editors complete and check a settings file as it is
written.
"""

from typing import Any

from pydantic import TypeAdapter

from autofl.config.arms import arm_names
from autofl.config.parts import SECTIONS, PartSettings
from autofl.config.scenarios import scenario_names
from autofl.config.settings import Settings
from autofl.ranges import Range, Setting
from autofl.registry import PARTS, find

OF_A_USER = {"properties": {"name": {"pattern": ":"}}, "required": ["name"]}
"""A section that names a part of a user's own, whose settings only its code knows."""


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a settings file: names, types, bounds, defaults and meanings.

    What it cannot say, such as lists that must have the same length, is checked when the file is
    read.
    """
    drawn = Settings.model_json_schema()
    names = drawn["$defs"]
    for section in SECTIONS.values():
        form = names[section.__name__]
        form["properties"]["name"]["examples"] = [*PARTS[section.kind]]
        settings = _settings_of(section)
        for key, same in settings.items():
            form["properties"][key] = {"description": same[0].meaning}
        forms = {key: _either(same) for key, same in settings.items()}
        form |= {"if": OF_A_USER, "else": {"properties": forms}}
    drawn["properties"]["arm"]["examples"] = arm_names()
    drawn["properties"]["scenario"]["examples"] = scenario_names()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **drawn,
        "title": "Settings of AutoFL",
    }


def _settings_of(section: type[PartSettings]) -> dict[str, list[Setting]]:
    """The settings of all parts that a section can name, by key."""
    settings: dict[str, list[Setting]] = {}
    for name in PARTS[section.kind]:
        for key, setting in find(section.kind, name).settings.items():
            if setting.meaning and key not in section.model_fields:
                settings.setdefault(key, []).append(setting)
    return settings


def _either(settings: list[Setting]) -> dict[str, Any]:
    """What a value may be that several parts have under one key."""
    forms: list[dict[str, Any]] = []
    for setting in settings:
        form = TypeAdapter(setting.type).json_schema()
        if setting.range is not None:
            _bound(form, setting.range)
        if form not in forms:
            forms.append(form)
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _bound(form: dict[str, Any], range_: Range) -> None:
    """Write a range beside every type of number in a form."""
    if form.get("type") in ("number", "integer"):
        bounds = {
            "exclusiveMinimum": range_.gt,
            "minimum": range_.ge,
            "exclusiveMaximum": range_.lt,
            "maximum": range_.le,
        }
        form |= {keyword: bound for keyword, bound in bounds.items() if bound is not None}
    inner = form.get("anyOf", [])
    for other in [*inner, form["items"]] if "items" in form else inner:
        _bound(other, range_)
