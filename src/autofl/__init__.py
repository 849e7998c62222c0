"""AutoFL: federated learning for mobile edge networks.

    import autofl
    settings = autofl.load_settings(overrides=["stop.rounds=50"])
    print(autofl.plan(settings, "exact").table()["round_time"])
    runs = autofl.compare(settings, "runs/mine")

Names are loaded when first used, so planning never imports PyTorch.
"""

from importlib import import_module
from typing import Any

from autofl.version import __version__

_HOME = {
    "AutoFLError": "autofl.errors",
    "Settings": "autofl.config",
    "build_simulation": "autofl.experiments.run",
    "compare": "autofl.experiments.jobs",
    "load_settings": "autofl.config",
    "make_report": "autofl.report.make",
    "plan": "autofl.experiments.cell",
    "plot": "autofl.report.plots",
    "read_run": "autofl.records",
    "run": "autofl.experiments.run",
    "simulate": "autofl.simulation",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'autofl' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
