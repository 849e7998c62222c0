"""The settings as a JSON schema, with which editors complete and check a settings file as it is
written.
"""

from typing import Any

from autofl.config.arms import arm_names
from autofl.config.parts import SECTIONS, PartSettings
from autofl.config.scenarios import scenario_names
from autofl.config.settings import Settings
from autofl.registry import PARTS, find


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a settings file: names, types, bounds, defaults and meanings.

    What it cannot say, such as lists that must have the same length, is checked when the file is
    read.
    """
    drawn = Settings.model_json_schema()
    names = drawn["$defs"]
    for section in SECTIONS.values():
        properties = names[section.__name__]["properties"]
        properties |= _settings_of(section)
        properties["name"]["examples"] = [*PARTS[section.kind]]
    drawn["properties"]["arm"]["examples"] = arm_names()
    drawn["properties"]["scenario"]["examples"] = scenario_names()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **drawn,
        "title": "Settings of AutoFL",
    }


def _settings_of(section: type[PartSettings]) -> dict[str, Any]:
    """The settings of all parts that a section can name, each with its meaning."""
    return {
        key: {"description": setting.meaning or key}
        for name in PARTS[section.kind]
        for key, setting in find(section.kind, name).settings.items()
        if setting.meaning and key not in section.model_fields
    }
