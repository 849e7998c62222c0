"""What Flower carries to the server and to each device when a run begins.

`autofl deploy run` fills in all of it. Whoever starts the app with `flwr run` needs `settings`
alone.
"""

import tomllib
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path

from flwr.app import Context
from pydantic import BaseModel

from autofl.config import Settings, parse_settings
from autofl.deploy.lease import watcher
from autofl.deploy.messages import Form
from autofl.errors import AutoFLError

MOST_TEXT = 1_000_000
"""Most characters of settings."""


@lru_cache(maxsize=8)
def settings_of(text: str) -> Settings:
    """The settings of a run from the text that its server and each of its devices get."""
    if len(text) > MOST_TEXT:
        raise AutoFLError(f"settings of the run: {len(text)} characters; at most {MOST_TEXT}")
    return parse_settings(tomllib.loads(text), "settings of the run").resolved()


class RunConfig(BaseModel):
    """A run as its server app is told of it. Flower's configuration holds single values, so lists
    are written as words.
    """

    settings: str  # TOML
    folder: str  # of the run
    attempt: str  # which start of the run this is
    resume: bool = False
    keep: bool | None = None  # a run that is there is an error; None: unless it is resumed
    lease: str = ""  # whoever holds it may use the devices; "": everybody may
    site: str = ""  # where the certificates lie
    stream: str = ""  # "HOST PORT" by which devices reach the server; port 0: any; "": no streams
    nodes: str = ""  # "UE=NODE UE=NODE": for whom each node is registered, where that is known
    form: str = ""  # "784 10": of samples that were dealt out: extents, then the number of classes
    slow: float = 1.0  # times slower than modelled, on a testbed

    @classmethod
    def of(cls, context: Context) -> "RunConfig":
        """By default the run folder is named by Flower's number of the run, where the SuperLink was
        started.
        """
        number = context.run_id
        told = {name: value for name, value in context.run_config.items() if value != ""}
        return cls(**{"folder": f"runs/flower-{number}", "attempt": str(number), **told})

    @cached_property
    def resolved(self) -> Settings:
        return settings_of(self.settings)

    @property
    def has_own_data(self) -> bool:
        """Whether the devices came with their samples; where `deploy up` dealt them out, it noted
        their form.
        """
        return not self.form

    @property
    def bound(self) -> dict[int, int]:
        """Which UE each node is registered for; empty where that is not known."""
        pairs = (pair.partition("=") for pair in self.nodes.split())
        return {int(node): int(ue) for ue, _, node in pairs}

    @property
    def samples(self) -> Form | None:
        """What samples look like: as set, else as they were when they were dealt out; None where
        nobody on this side knows.
        """
        deploy = self.resolved.deploy
        if deploy.sample_shape is not None and deploy.num_classes is not None:
            return Form(sample_shape=tuple(deploy.sample_shape), num_classes=deploy.num_classes)
        if not self.form:
            return None
        *shape, classes = map(int, self.form.split())
        return Form(sample_shape=tuple(shape), num_classes=classes)

    @property
    def watch(self) -> Callable[[], None]:
        """What the server calls before it does anything."""
        return watcher(Path(self.lease), self.attempt) if self.lease else lambda: None
