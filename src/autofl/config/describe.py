"""The tables of settings and of parts, from the settings and the registry themselves."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from autofl.config.arms import arm_names, read_arm, settings_of
from autofl.config.load import flat_settings
from autofl.config.quantity import PerUE
from autofl.config.settings import Settings
from autofl.ranges import Setting
from autofl.registry import PARTS, Kind, find


def describe() -> list[tuple[str, str, str]]:
    """Key, default and meaning of every setting."""
    rows: list[tuple[str, str, str]] = []
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, BaseModel):
            section = type(field.default).model_fields
            rows += [
                (f"{name}.{key}", _text(info.default), info.description or "")
                for key, info in section.items()
            ]
        else:
            rows.append((name, _text(field.default), field.description or ""))
    return rows


def describe_parts(kinds: Sequence[Kind] = tuple(PARTS)) -> list[tuple[str, str, str, str]]:
    """Kind, name, label and settings (with default, range and meaning) of every part of these kinds."""
    rows: list[tuple[str, str, str, str]] = []
    for kind in kinds:
        for name in PARTS[kind]:
            part = find(kind, name)
            settings = [
                _said(key, setting) for key, setting in part.settings.items() if setting.meaning
            ]
            rows.append((kind, name, part.label, "; ".join(settings) or "–"))
    return rows


def _said(key: str, setting: Setting) -> str:
    """A setting with its default, its range and what it means: such as "share = 0.05, > 0 and <= 1 (...)"."""
    default = "" if setting.is_needed else f" = {_text(setting.default)}"
    allowed = "" if setting.range is None else f", {setting.range}"
    return f"{key}{default}{allowed} ({setting.meaning})"


def describe_arms() -> list[tuple[str, str, str, str, str]]:
    """Name, title, algorithm, planner and further settings of every arm of the package."""
    rows = []
    for name in arm_names():
        arm = read_arm(name)
        settings = settings_of(name)
        planner = settings.pop("planner")
        own = ", ".join(
            f"{key} = {_text(value)}" for key, value in planner.items() if key != "name"
        )
        others = ", ".join(
            f"{key} = {_text(value)}" for key, value in flat_settings(settings).items()
        )
        shown = f"{planner['name']} ({own})" if own else planner["name"]
        rows.append((name, arm["title"], arm["algorithm"], shown, others or "–"))
    return rows


def _text(value: Any) -> str:
    if isinstance(value, PerUE):
        value = value.dump()
    if value is None:
        return "–"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_text(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list) and value and isinstance(value[0], float):
        return "[" + ", ".join(f"{number:g}" for number in value) + "]"
    return json.dumps(value)
