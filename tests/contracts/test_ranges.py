"""The range of every setting of every part: what lies just outside is refused in one line by a
settings file, by --set and in Python, and the ends are taken.

A part that is added to the registry is tested here without a further line.
"""

import math
import typing
from types import NoneType

import numpy as np
import pytest

from autofl.config import load_settings
from autofl.config.parts import PartSettings, checked_settings
from autofl.config.settings import Settings
from autofl.errors import AutoFLError
from autofl.ranges import NOT_SET, Range
from autofl.registry import PARTS, find

NUMBERS = [
    (kind, name, key)
    for kind in PARTS
    for name in PARTS[kind]
    for key, setting in find(kind, name).settings.items()
    if setting.range is not None
]
WORDS = [
    (kind, name, key)
    for kind in PARTS
    for name in PARTS[kind]
    for key, setting in find(kind, name).settings.items()
    if setting.choices
]
NEEDED = {
    "algorithm": {"outer_lr": 0.1, "inner_lr": 0.1},
    "link": {"levels": [[1.0, 0.0]]},
}
BESIDE = {"radio": {"scenario": "log-distance"}}  # whose law holds throughout what Radio takes
NUM_MCS = {"nr-64qam": 29, "nr-256qam": 28}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranges") / "gains.csv"
    path.write_text("0.1,0.2\n0.3,0.4\n", encoding="utf-8")
    return str(path)


def with_the_others(kind, name, key, value, trace):
    """The setting with whatever else its part cannot do without."""
    needed = {**NEEDED.get(kind, {}), "file": trace}
    settings = find(kind, name).settings
    others = {other: needed[other] for other in settings if settings[other].default is NOT_SET}
    return {**others, **BESIDE.get(name, {}), key: value}


def bare(setting):
    """The type of a setting without its notes and without None."""
    hint = setting.type
    if hasattr(hint, "__metadata__"):
        hint = typing.get_args(hint)[0]
    kinds = [one for one in typing.get_args(hint) if one is not NoneType]
    return kinds[0] if NoneType in typing.get_args(hint) else hint


def beside(bound, setting, way):
    """The next value in this direction."""
    return bound + way if bare(setting) is int else math.nextafter(bound, way * math.inf)


def outside(setting):
    allowed = setting.range
    values = [bound for bound in (allowed.gt, allowed.lt) if bound is not None]
    if allowed.ge is not None:
        values.append(beside(allowed.ge, setting, -1))
    if allowed.le is not None:
        values.append(beside(allowed.le, setting, 1))
    return [*values, math.nan, *([math.inf, -math.inf] if allowed.finite else [])]


def ends(setting):
    allowed = setting.range
    values = [bound for bound in (allowed.ge, allowed.le) if bound is not None]
    if allowed.gt is not None:
        values.append(beside(allowed.gt, setting, 1))
    if allowed.lt is not None:
        values.append(beside(allowed.lt, setting, -1))
    return values


def in_form(setting, name, number):
    """A number as the setting is written: alone, or as a list."""
    form = bare(setting)
    if form is float:
        return float(number)
    return [float(number)] * NUM_MCS[name] if form == list[float] else number


def section_of(kind):
    """The section of settings that names such a part; None where there is none."""
    sections = {
        field.default.kind: section
        for section, field in reversed(Settings.model_fields.items())
        if isinstance(field.default, PartSettings)
    }
    return sections.get(kind)


def by_file(kind, name, settings, path):
    lines = [f"{key} = {written(value)}" for key, value in settings.items()]
    path.write_text("\n".join([f"[{section_of(kind)}]", f'name = "{name}"', *lines]))
    return load_settings(path)


def by_set(kind, name, settings):
    section = section_of(kind)
    values = {"name": name, **settings}
    return load_settings(overrides=[f"{section}.{key}={written(values[key])}" for key in values])


def written(value):
    return f'"{value}"' if isinstance(value, str) else repr(value)


def doors(kind, name, settings, tmp_path):
    """Every way in which a user can give these settings."""
    part = find(kind, name)
    yield lambda: part.target(**settings)
    yield lambda: part.build(settings)
    if any(isinstance(value, np.ndarray) for value in settings.values()):
        return
    yield lambda: checked_settings(part, settings)
    if section_of(kind) is not None and part.settings[next(reversed(settings))].meaning:
        yield lambda: by_file(kind, name, settings, tmp_path / "settings.toml")
        yield lambda: by_set(kind, name, settings)


@pytest.mark.parametrize(("kind", "name", "key"), NUMBERS)
def test_a_number_just_outside_its_range_is_refused_in_one_line(kind, name, key, trace, tmp_path):
    setting = find(kind, name).settings[key]
    for number in outside(setting):
        value = in_form(setting, name, number)
        settings = with_the_others(kind, name, key, value, trace)
        for door in doors(kind, name, settings, tmp_path):
            with pytest.raises(AutoFLError, match=f"{key}: must be |more than 64 bits") as refused:
                door()
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("kind", "name", "key"), NUMBERS)
def test_the_ends_of_a_range_are_taken(kind, name, key, trace, tmp_path):
    setting = find(kind, name).settings[key]
    assert setting.is_needed or setting.default is None or setting.default in setting.range
    for number in ends(setting):
        value = in_form(setting, name, number)
        settings = with_the_others(kind, name, key, value, trace)
        for door in doors(kind, name, settings, tmp_path):
            door()


@pytest.mark.parametrize(("kind", "name", "key"), WORDS)
def test_a_word_that_is_none_of_those_known_is_refused(kind, name, key, trace, tmp_path):
    settings = with_the_others(kind, name, key, "nonesuch", trace)
    for door in doors(kind, name, settings, tmp_path):
        with pytest.raises(AutoFLError, match=f"{key}: must be '.*' or '.*' .got 'nonesuch'"):
            door()


def test_every_number_that_a_user_may_set_has_a_range():
    """Those of a model's function are the shapes of the data."""
    forgotten = [
        (name, key)
        for kind in PARTS
        if kind != "model"
        for name in PARTS[kind]
        for key, setting in find(kind, name).settings.items()
        if bare(setting) in (int, float) and setting.range is None
    ]
    assert not forgotten
    assert len(NUMBERS) > 80


def test_a_range_holds_lists_and_arrays_and_nothing_that_is_no_number():
    share = Range(gt=0, le=1)
    assert str(share) == "> 0 and <= 1"
    for inside in (1, 0.5, np.float32(0.5), [0.1, 1.0], np.ones(3), [], [[0.5], [0.25]]):
        assert inside in share
    for no in (0, 1.5, "0.5", True, None, [0.5, 2.0], [[0.5], [0.5, 0.5]], math.nan, np.zeros(2)):
        assert no not in share
    assert math.inf not in Range(gt=0)
    assert math.inf in Range(gt=0, finite=False)
    assert math.nan not in Range()
    assert share.culprit([0.5, 2.0, 3.0]) == 2.0  # what is shown of a list
