"""The table of settings, from the settings themselves."""

import json
from typing import Any

from pydantic import BaseModel

from autofl.config.quantity import PerUE
from autofl.config.settings import Settings


def describe() -> list[tuple[str, str, str]]:
    """Key, default and meaning of every setting."""
    rows: list[tuple[str, str, str]] = []
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, BaseModel):
            section = type(field.default).model_fields
            rows += [(f"{name}.{key}", _text(each.default), each.description or "") for key, each in section.items()]
        else:
            rows.append((name, _text(field.default), field.description or ""))
    return rows


def _text(value: Any) -> str:
    if isinstance(value, PerUE):
        value = value.dump()
    if value is None:
        return "–"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list) and value and isinstance(value[0], float):
        return "[" + ", ".join(f"{each:g}" for each in value) + "]"
    return json.dumps(value)
