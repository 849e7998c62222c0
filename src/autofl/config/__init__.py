"""Settings: what a user writes in TOML, validated at the door."""

from autofl.config.load import dump_settings, load_settings, parse_settings
from autofl.config.quantity import PerUE
from autofl.config.settings import MODEL_WEIGHTS, CellSettings, DataSettings, Settings

__all__ = [
    "MODEL_WEIGHTS",
    "CellSettings",
    "DataSettings",
    "PerUE",
    "Settings",
    "dump_settings",
    "load_settings",
    "parse_settings",
]
