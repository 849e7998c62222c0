"""The settings as a JSON schema, with which editors complete and check a settings file as it is
written.
"""

from typing import Any

from autofl.config.parts import PartSettings
from autofl.config.settings import Settings
from autofl.registry import PARTS, find


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a settings file: names, types, bounds, defaults and meanings.

    What it cannot say, such as lists that must have the same length, is checked when the file is
    read.
    """
    drawn = Settings.model_json_schema()
    names = drawn["$defs"]
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, PartSettings):
            section = names[type(field.default).__name__]
            section["properties"] = {**section["properties"], **_settings_of(field.default)}
            section["properties"]["name"]["examples"] = [*PARTS[field.default.kind]]
        if name == "algorithm":
            drawn["properties"]["algorithm"]["examples"] = [*PARTS["algorithm"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **drawn,
        "title": "Settings of AutoFL",
    }


def _settings_of(section: PartSettings) -> dict[str, Any]:
    """The settings of all parts that a section can name, each with its meaning."""
    fields = type(section).model_fields
    return {
        key: {"description": setting.meaning or key}
        for name in PARTS[section.kind]
        for key, setting in find(section.kind, name).settings.items()
        if setting.meaning and key not in fields
    }
