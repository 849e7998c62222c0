"""AutoFL: federated learning for mobile edge networks.

    import autofl as fl
    cell = fl.Cell.disc(num_ue=20, radius=400, seed=1)
    data = fl.load("mnist5k").federate(fl.by_labels(5), num_ue=20, seed=1)
    arms = {"AutoFL": fl.Arm(fl.PerFedAvg(0.03, 0.07), fl.ExactPlanner(0.02))}
    runs = fl.compare(arms, cell, data, fl.mlp, rounds=200, seeds=5)
    runs.table(target=0.85)

Names are loaded when first used, so planning never imports PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autofl.version import __version__

if TYPE_CHECKING:
    from autofl.algorithms import Algorithm as Algorithm
    from autofl.algorithms import Averaging as Averaging
    from autofl.algorithms import FedAvg as FedAvg
    from autofl.algorithms import PerFedAvg as PerFedAvg
    from autofl.algorithms import State as State
    from autofl.algorithms import minus as minus
    from autofl.algorithms import num_steps as num_steps
    from autofl.algorithms import step_of as step_of
    from autofl.api import Runs as Runs
    from autofl.api import arm as arm
    from autofl.api import compare as compare
    from autofl.api import part as part
    from autofl.api import simulation_of as simulation_of
    from autofl.channels import Channel as Channel
    from autofl.channels import Exponential as Exponential
    from autofl.channels import Fading as Fading
    from autofl.channels import NoFading as NoFading
    from autofl.channels import PathLoss as PathLoss
    from autofl.channels import Radio as Radio
    from autofl.channels import Rayleigh as Rayleigh
    from autofl.channels import success_probability as success_probability
    from autofl.compressors import Compressor as Compressor
    from autofl.compressors import Sent as Sent
    from autofl.config import load_settings as load_settings
    from autofl.core.arm import Arm as Arm
    from autofl.core.simulation import simulate as simulate
    from autofl.core.stop import Stop as Stop
    from autofl.data import Dataset as Dataset
    from autofl.data import Partition as Partition
    from autofl.data import PartitionLaw as PartitionLaw
    from autofl.data import load as load
    from autofl.data.batch import Batch as Batch
    from autofl.data.batch import MetaBatch as MetaBatch
    from autofl.data.partition import by_labels as by_labels
    from autofl.data.partition import dirichlet as dirichlet
    from autofl.data.partition import iid as iid
    from autofl.errors import AutoFLError as AutoFLError
    from autofl.evaluation import Evaluator as Evaluator
    from autofl.experiments.build import build_simulation as build_simulation
    from autofl.experiments.cell import plan as plan
    from autofl.jobs.run import run as run
    from autofl.models import Loss as Loss
    from autofl.models import Params as Params
    from autofl.models import lenet5 as lenet5
    from autofl.models import mlp as mlp
    from autofl.network import Cell as Cell
    from autofl.network import Law as Law
    from autofl.network import Plan as Plan
    from autofl.network import Status as Status
    from autofl.network import make_plan as make_plan
    from autofl.network import round_cost as round_cost
    from autofl.planner import ExactPlanner as ExactPlanner
    from autofl.planner import FixedPlanner as FixedPlanner
    from autofl.planner import JointPlanner as JointPlanner
    from autofl.planner import Memoryless as Memoryless
    from autofl.planner import PaperPlanner as PaperPlanner
    from autofl.planner import Planner as Planner
    from autofl.records import read_run as read_run
    from autofl.report.make import make_report as make_report
    from autofl.report.plots import plot as plot
    from autofl.robust.aggregators import Aggregator as Aggregator
    from autofl.robust.aggregators import Mean as Mean
    from autofl.selection import ByData as ByData
    from autofl.selection import Selected as Selected
    from autofl.selection import Selection as Selection
    from autofl.selection import Uniform as Uniform

_HOME = {
    "autofl.robust.aggregators": ("Aggregator", "Mean"),
    "autofl.algorithms": ("Algorithm", "Averaging", "FedAvg", "PerFedAvg", "State", "minus", "num_steps", "step_of"),
    "autofl.api": ("Runs", "arm", "compare", "part", "simulation_of"),
    "autofl.channels": (
        "Channel", "Exponential", "Fading", "NoFading", "PathLoss", "Radio", "Rayleigh", "success_probability"
    ),
    "autofl.compressors": ("Compressor", "Sent"),
    "autofl.config": ("load_settings",),
    "autofl.data": ("Dataset", "Partition", "PartitionLaw", "load"),
    "autofl.data.batch": ("Batch", "MetaBatch"),
    "autofl.data.partition": ("by_labels", "dirichlet", "iid"),
    "autofl.errors": ("AutoFLError",),
    "autofl.evaluation": ("Evaluator",),
    "autofl.experiments.cell": ("plan",),
    "autofl.experiments.build": ("build_simulation",),
    "autofl.jobs.run": ("run",),
    "autofl.models": ("Loss", "Params", "lenet5", "mlp"),
    "autofl.network": ("Cell", "Law", "Plan", "Status", "make_plan", "round_cost"),
    "autofl.planner": (
        *("ExactPlanner", "FixedPlanner", "JointPlanner", "PaperPlanner"),
        *("Memoryless", "Planner"),
    ),
    "autofl.records": ("read_run",),
    "autofl.report.make": ("make_report",),
    "autofl.report.plots": ("plot",),
    "autofl.core.arm": ("Arm",),
    "autofl.core.stop": ("Stop",),
    "autofl.selection": ("ByData", "Selected", "Selection", "Uniform"),
    "autofl.core.simulation": ("simulate",),
}  # fmt: skip
_MODULES = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "__version__",
    *_MODULES,
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'autofl' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
