"""Settings: what a user writes in TOML, validated at the door."""

from autofl.config.load import (
    dump_said,
    dump_settings,
    flat_settings,
    load_settings,
    name_of,
    parse_settings,
    parse_value,
)
from autofl.config.quantity import PerUE
from autofl.config.settings import MODEL_WEIGHTS, CellSettings, DataSettings, Settings

__all__ = [
    "MODEL_WEIGHTS",
    "CellSettings",
    "DataSettings",
    "PerUE",
    "Settings",
    "dump_said",
    "dump_settings",
    "flat_settings",
    "load_settings",
    "name_of",
    "parse_settings",
    "parse_value",
]
