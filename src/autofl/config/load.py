"""Reading settings: TOML in, validated settings out, or one line that says what is wrong."""

import difflib
import hashlib
import json
import re
import reprlib
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from autofl.config.arms import with_files_read
from autofl.config.layers import sections, without_settings_of_replaced_parts
from autofl.config.settings import Settings
from autofl.errors import AutoFLError
from autofl.files import quoted, read_toml
from autofl.units import PathLike


def load_settings(
    path: PathLike | None = None, overrides: Iterable[str] = (), scenario: str | None = None
) -> Settings:
    """Settings of a TOML file (the defaults without one), then each override "section.key=value" on
    top.

    A scenario and the arm that is named give the values that neither of them sets. The file of a run
    may be a stranger's: parts of its own (`module:object`) are imported only if an override names
    them too.
    """
    table = with_files_read(read_toml(path)) if path is not None else {}
    overrides = list(overrides)
    if path is not None and _is_of_a_run(Path(path)):
        check_asked(path, table, overrides)
    origin = str(path) if path is not None else "settings"
    if scenario is not None:
        table["scenario"] = scenario
        origin = f"scenario {scenario}" + (f" and {path}" if path is not None else "")
    below = sections(table)
    for override in overrides:
        _apply(table, override)
    without_settings_of_replaced_parts(
        table, below, {override.partition("=")[0].strip() for override in overrides}
    )
    return parse_settings(table, origin)


def _is_of_a_run(path: Path) -> bool:
    """Whether a file lies in the folder of a run, or is the settings of several; anybody may have
    made them.
    """
    below = ("", "*/", "runs/*/") if path.name in OF_RUNS else ("",)
    places = (f"{folder}{name}" for folder in below for name in LEFT_BY_US)
    return any(any(path.parent.glob(place)) for place in places)


def check_asked(path: PathLike, table: dict[str, Any], overrides: Iterable[str]) -> None:
    """Refuse parts that are code of a user's own (`module:object`), but for those that the
    overrides name as well.
    """
    check_keys(path, table)
    table = with_files_read(table)
    said: dict[str, Any] = {}
    for override in overrides:
        _apply(said, override)
    said = with_files_read(said)
    asked = {name for names in _own_code(said).values() for name in names}
    if missing := sorted({name for names in _own_code(table).values() for name in names} - asked):
        words = " ".join(own_code_named(table))
        raise AutoFLError(
            f"{path}: it runs code of its own, {missing[0]}; if you trust it, name it too: {words}"
        )


def check_keys(origin: PathLike, table: Mapping[str, Any]) -> None:
    """Refuse a key with a dot in it, which TOML allows in quotes: it would hide another one from
    `flat_settings`.
    """
    for key, value in table.items():
        if "." in key:
            raise AutoFLError(
                f"{origin}: unknown key {_shortened(repr(key), 60)}; no setting has a dot in its name"
            )
        if isinstance(value, dict):
            check_keys(origin, value)


def own_code_named(table: dict[str, Any]) -> list[str]:
    """The options that name the code of these settings which is not ours: what `check_asked` asks
    for.
    """
    values = flat_settings(table)
    return [f"--set {shlex.quote(f'{key}={written(values[key])}')}" for key in _own_code(table)]


def resume_words(folder: PathLike, table: dict[str, Any]) -> str:
    """The options with which a command goes on with a run or comparison of these settings."""
    return " ".join([f"--resume {quoted(folder)}", *own_code_named(table)])


def written(value: Any) -> str:
    """A value as --set reads it."""
    return value if isinstance(value, str) else _as_toml(value)


def _as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_as_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_as_toml, value)) + "]"
    return json.dumps(value)


def _own_code(table: dict[str, Any]) -> dict[str, list[str]]:
    """By its key what names parts that are not ours."""
    named = {key: _names(key, value) for key, value in flat_settings(table).items()}
    own = {key: [name for name in names if ":" in name] for key, names in named.items()}
    return {key: names for key, names in own.items() if names}


def _names(key: str, value: Any) -> list[str]:
    """The parts that a value names; an arm in a list is a name or a table."""
    if key.rpartition(".")[2] not in NAMING:
        return []
    names = list[str]()
    for one in value if isinstance(value, list) else [value]:
        inner = flat_settings(one) if isinstance(one, dict) else {}
        names += [str(one)] if not inner else []
        names += [name for where, what in inner.items() for name in _names(where, what)]
    return names


CONFIG = "config.toml"
OF_RUNS = (CONFIG, "tuned.toml")
"""The settings of a run, of a comparison or a sweep; and the best ones of `autofl tune`."""
LEFT_BY_US = (
    ".lock",
    "manifest.json",
    "rounds.csv",
    "ues.csv",
    "checkpoint-?",
    "sweep.csv",
    "sweep.json",
    "tuned.json",
)
"""Files by which a folder of results is told, even where one of them was taken away."""
NAMING = ("arm", "arms", "algorithm", "name", "partition")
"""Keys whose values name parts."""
FROM_OBJECTS = "made_from_objects"
"""Marks the config.toml of a run that Python objects made: it cannot be repeated from there."""


def parse_settings(table: dict[str, Any], origin: str = "settings") -> Settings:
    """Settings of a nested table, or an AutoFLError of one line."""
    if FROM_OBJECTS in table:
        raise AutoFLError(
            f"{origin}: this run was made from Python objects; its parts are in manifest.json, not here"
        )
    check_keys(origin, table)
    try:
        return Settings.model_validate(table)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise AutoFLError(f"{origin}: {_one_line(problems[0])}{more}") from None
    except RecursionError:
        raise AutoFLError(f"{origin}: nested too deep") from None


RENAMED = {
    "algorithm": "algorithm is called arm now",
    "compare.algorithms": "compare.algorithms is called compare.arms now",
    "baseline": "[baseline] is [planner] now, the one section for all arms",
    "joint": "[joint] is [planner] now, the one section for all arms",
}
"""Keys of earlier settings files."""


def dump_settings(settings: Settings) -> str:
    """Settings as TOML text; `load_settings` reads it back to the same."""
    return tomli_w.dumps(settings.table())


def dump_said(settings: Settings) -> str:
    """What is set, as TOML text: for several arms, since each brings defaults of its own."""
    return tomli_w.dumps(settings.said())


def flat_settings(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by "section.key"; a law such as {uniform = [1, 2]} is taken apart too."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= (
            flat_settings(value, f"{prefix}{key}.")
            if isinstance(value, dict)
            else {f"{prefix}{key}": value}
        )
    return flat


def name_of(settings: Settings) -> str:
    """The name of a run in a store: arm, seed and a hash of all that is set."""
    text = dump_settings(settings.resolved())
    arm = re.sub(r"[^A-Za-z0-9._-]+", "-", settings.arm_name)  # module:object has a colon
    return f"{arm}-seed{settings.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def parse_value(text: str) -> Any:
    """The value that a setting is given on a command line: TOML, or a bare word such as exact."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except RecursionError:
        raise AutoFLError(f"{_shortened(text, 60)}: nested too deep") from None
    except ValueError:
        return text.strip()


def _apply(table: dict[str, Any], override: str) -> None:
    key, sign, text = override.partition("=")
    if not sign or not key.strip():
        raise AutoFLError(
            f"--set {_shortened(override, 60)}: write it as section.key=value, for example stop.rounds=50"
        )
    *sections, last = key.strip().split(".")
    value = parse_value(text)
    if len(sections) > 8:
        raise AutoFLError(f"--set {_shortened(override, 60)}: a setting is section.key=value")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise AutoFLError(
                f"--set {_shortened(override, 60)}: {section} is a value, not a section"
            )
    table[last] = value


def _one_line(problem: Any) -> str:
    where = [str(part) for part in problem["loc"]]
    key = ".".join(where)
    given = _shortened(reprlib.repr(problem["input"]), 60)
    if key in RENAMED:
        return RENAMED[key]
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(where[-1], _keys_at(where[:-1]), n=1, cutoff=0.0)
        return f"{key}: unknown key; the nearest is {'.'.join([*where[:-1], *close])!r}"
    if problem["type"] == "model_type":
        return f"{key}: must be a section, [{key}] (got {given})"
    message = problem["msg"][:1].lower() + problem["msg"][1:]
    prefix = (
        f"{key}: "
        if key and not (problem["type"] == "part" and message.startswith(f"{key} "))
        else ""
    )
    if isinstance(problem["input"], BaseModel | dict) or problem["type"] in (
        "cell",
        "data",
        "compare",
        "deploy",
        "settings",
        "part",
    ):
        return f"{prefix}{message}"
    return f"{prefix}{message.replace('input should', 'must')} (got {given})"


def _keys_at(where: list[str]) -> list[str]:
    model: Any = Settings
    for part in where:
        field = model.model_fields.get(part)
        model = field.annotation if field is not None else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
    return list(model.model_fields)


def _shortened(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 3] + "..."
