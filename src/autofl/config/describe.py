"""The tables of settings and of parts, from the settings and the registry themselves."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from autofl.config.arms import arm_names, read_arm, settings_of
from autofl.config.load import flat_settings
from autofl.config.quantity import PerUE
from autofl.config.settings import Settings
from autofl.ranges import Setting
from autofl.registry import PARTS, Kind, find


class DescribedSetting(NamedTuple):
    """A setting of a part; `allowed` is its range or its choices."""

    key: str
    default: str
    allowed: str
    meaning: str


class DescribedPart(NamedTuple):
    """A part, what it is, and its settings."""

    kind: str
    name: str
    what: str
    settings: list[DescribedSetting]


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


def describe_parts(kinds: Sequence[Kind] = tuple(PARTS)) -> list[DescribedPart]:
    """Every part of these kinds, with its settings."""
    rows = []
    for kind in kinds:
        for name in PARTS[kind]:
            part = find(kind, name)
            settings = [
                _described(key, setting)
                for key, setting in part.settings.items()
                if setting.meaning
            ]
            rows.append(DescribedPart(kind, name, part.label, settings))
    return rows


def _described(key: str, setting: Setting) -> DescribedSetting:
    default = "needed" if setting.is_needed else _text(setting.default)
    allowed = "" if setting.range is None else str(setting.range)
    choices = ", ".join(map(str, setting.choices))
    return DescribedSetting(key, default, allowed or choices or "–", setting.meaning)


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
