"""The settings of a run as Flower carries them to the server and to each device.

`autofl deploy run` fills in all of them. Whoever starts the app with `flwr run` needs `settings`
alone.
"""

import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from flwr.app import Context

from autofl.config import Settings, parse_settings
from autofl.deploy.fleet import Form
from autofl.deploy.lease import watcher
from autofl.errors import AutoFLError

MOST_TEXT = 1_000_000
"""Most characters of settings."""


@lru_cache(maxsize=8)
def settings_of(text: str) -> Settings:
    """The settings of a run from the text that its server and each of its devices get."""
    if len(text) > MOST_TEXT:
        raise AutoFLError(f"settings of the run: {len(text)} characters; at most {MOST_TEXT}")
    return parse_settings(tomllib.loads(text), "settings of the run").resolved()


def folder_of(context: Context) -> Path:
    """The run folder; by default one that is named by Flower's number of the run, where the
    SuperLink was started.
    """
    return Path(str(context.run_config.get("folder", "")) or f"runs/flower-{context.run_id}")


def attempt_of(context: Context) -> str:
    """Which start of the run this is."""
    return str(context.run_config.get("attempt", context.run_id))


def nodes_of(context: Context) -> dict[int, int]:
    """Which UE each node is registered for, {node: UE}; empty where that is not known. Written
    "UE=NODE UE=NODE".
    """
    pairs = (pair.partition("=") for pair in str(context.run_config.get("nodes", "")).split())
    return {int(node): int(ue) for ue, _, node in pairs}


def form_of(settings: Settings, context: Context) -> Form | None:
    """What samples look like: as set, else as they were when they were dealt out; None where nobody
    on this side knows.

    Written "784 10": the extents, then the number of classes.
    """
    deploy = settings.deploy
    if deploy.sample_shape is not None and deploy.num_classes is not None:
        return Form(tuple(deploy.sample_shape), deploy.num_classes)
    *shape, classes = [int(word) for word in str(context.run_config.get("form", "")).split()] or [0]
    return Form(tuple(shape), classes) if shape else None


def has_own_data(context: Context) -> bool:
    """Whether the devices came with their samples; where `deploy up` dealt them out, it noted their
    form.
    """
    return "form" not in context.run_config


def stream_of(context: Context) -> tuple[Path, str, int] | None:
    """Where the certificates lie, the name by which devices reach the server, and the port of
    streams; None: without.

    Written "HOST PORT"; port 0 is one of the system's choice.
    """
    words = str(context.run_config.get("stream", "")).split()
    return (Path(str(context.run_config["site"])), words[0], int(words[1])) if words else None


def slow_of(context: Context) -> float:
    """How many times slower than modelled the links and processors of a testbed are; 1 elsewhere."""
    return float(context.run_config.get("slow", 1.0))


def watch_of(context: Context) -> Callable[[], None]:
    """What the server calls before it does anything; a run that was started without a lease is not
    watched.
    """
    lease = str(context.run_config.get("lease", ""))
    return watcher(Path(lease), attempt_of(context)) if lease else lambda: None
