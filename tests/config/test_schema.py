"""The JSON schema for editors: it equals the file that is kept, takes good settings and refuses bad
ones.
"""

import json
import tomllib
from pathlib import Path

import pytest

from autofl.config.load import parse_settings
from autofl.config.schema import schema
from autofl.errors import AutoFLError

ROOT = Path(__file__).parents[2]
GOOD = [
    *sorted((ROOT / "src" / "autofl" / "scenarios").glob("*.toml")),
    *sorted((ROOT / "examples").glob("*.toml")),
]
BAD = [
    {"cell": {"max_energi": 1.0}},
    {"cell": {"max_energy": -1.0}},
    {"cell": {"max_power": 0}},
    {"cell": {"max_energy": {"uniform": [1.0]}}},
    {"cell": {"distance": {"rayleigh": 3.0}}},
    {"cell": {"bandwidth": []}},
    {"stop": {"rounds": 1.5}},
    {"stop": {"rounds": 0}},
    {"preset": "other"},
    {"seed": -1},
    {"nothing": {}},
]


@pytest.fixture(scope="module")
def validator():
    jsonschema = pytest.importorskip("jsonschema", reason="needs the extra dev")
    drawn = schema()
    jsonschema.Draft202012Validator.check_schema(drawn)
    return jsonschema.Draft202012Validator(drawn)


def test_the_file_that_is_kept_is_what_the_command_prints():
    assert (
        json.loads((ROOT / "docs" / "settings.schema.json").read_text(encoding="utf-8")) == schema()
    )


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_settings_that_are_read_are_taken(validator, path):
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    table.pop("scenario", None)
    assert [error.message for error in validator.iter_errors(table)] == []


@pytest.mark.parametrize("table", BAD, ids=str)
def test_what_is_refused_when_read_is_refused_by_the_schema_too(validator, table):
    with pytest.raises(AutoFLError):
        parse_settings(table)
    assert not validator.is_valid(table)
