"""The settings of a run as Flower carries them to the server and to each device."""

import tomllib

from flwr.app import Context

from autofl.config import Settings, parse_settings


def settings_of(context: Context) -> Settings:
    """The settings of a run, as its server and each of its devices get them."""
    return parse_settings(tomllib.loads(str(context.run_config["settings"])), "settings of the run").resolved()
