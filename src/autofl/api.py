"""AutoFL for notebooks: objects in, runs out.

runs = compare({"AutoFL": Arm(PerFedAvg(0.03, 0.07), ExactPlanner(0.02))}, cell, data, mlp,
rounds=200, seeds=5) runs.table(target=0.85); runs.plot("sim_time", "adapted_accuracy")
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import tomli_w
from matplotlib.figure import Figure
from torch import nn

from autofl.algorithms import Algorithm
from autofl.channels import Channel, PathLoss, Rayleigh
from autofl.compressors import Compressor
from autofl.compressors.downlink import downlink_bits
from autofl.config.load import FROM_OBJECTS, load_settings
from autofl.config.parts import checked_settings
from autofl.core.arm import Arm
from autofl.core.round import Round
from autofl.core.simulation import Simulation
from autofl.core.stop import Stop
from autofl.data import PartitionLaw
from autofl.data.federated import FederatedData
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator
from autofl.experiments.build import assemble, build_algorithm
from autofl.experiments.cell import build_arm, build_compressor, build_downlink, update_bits
from autofl.files import inside
from autofl.jobs.job import OnProgress, Progress
from autofl.jobs.many import file_names
from autofl.jobs.recording import write_run
from autofl.jobs.run import facts_of
from autofl.models import build, check_model, num_weights, params_of
from autofl.network import Cell, Outage
from autofl.planner import Planner
from autofl.records import Run
from autofl.registry import Kind, check_part, find
from autofl.report.plots import plot
from autofl.report.progress import ProgressBar
from autofl.report.runs import group
from autofl.report.summary import summarise, table
from autofl.report.table import Table
from autofl.rng import stream
from autofl.robust.aggregators import Aggregator
from autofl.selection import Selection
from autofl.units import PathLike

DEFAULT_CHANNEL = PathLoss(Rayleigh(40.0))
"""The paper's."""
ModelFactory = Callable[[tuple[int, ...], int], nn.Module]
"""factory(sample_shape, num_classes) -> a fresh model, as `mlp` and `lenet5` are."""


@overload
def part(kind: Literal["algorithm"], name: str, **settings: object) -> Algorithm: ...
@overload
def part(kind: Literal["planner"], name: str, **settings: object) -> Planner: ...
@overload
def part(kind: Literal["channel"], name: str, **settings: object) -> Channel: ...
@overload
def part(kind: Literal["selection"], name: str, **settings: object) -> Selection: ...
@overload
def part(kind: Literal["compressor"], name: str, **settings: object) -> Compressor: ...
@overload
def part(kind: Literal["aggregator"], name: str, **settings: object) -> Aggregator: ...
@overload
def part(kind: Literal["partition"], name: str, **settings: object) -> PartitionLaw: ...
def part(kind: Kind, name: str, **settings: object) -> object:
    """A part by its name, as settings find it: `part("algorithm", "fedprox", outer_lr=0.07,
    mu=0.1)`.

    One of ours (`autofl list parts`), or `module:object` of your own.
    """
    wanted = find(kind, name)
    return wanted.build(checked_settings(wanted, settings))


def arm(name: str, *overrides: str) -> Arm:
    """An arm by its name, as `autofl list arms` has it, for `compare` and `simulation_of`.

    A file of your own will do too, and so will an algorithm: `arm("mine.toml")`, `arm("fedprox")`.
    Without `simulation.num_selected` five UEs are asked in a round: what a cell is, is not known here.

    Args:
        overrides: settings as after --set, such as "planner.thrift=0.5".
    """
    settings = load_settings(overrides=[f"arm={name}", *overrides])
    asked = {"num_selected": settings.simulation.num_selected}
    simulation = settings.simulation.model_copy(update=asked)
    settings = settings.model_copy(update={"simulation": simulation}).resolved()
    robust = settings.aggregator.name != "mean"
    return build_arm(
        settings,
        None,
        build_compressor(settings),
        build_downlink(settings),
        algorithm=build_algorithm(settings),
        aggregator=settings.aggregator.build() if robust else None,
    )


class Runs(Sequence[Run]):
    """The runs of a comparison; a notebook shows their table."""

    def __init__(self, runs: Sequence[Run], keep: object = None) -> None:
        # a temporary folder lives as long as what was read from it
        self._runs = list(runs)
        self._keep = keep

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> "Runs": ...
    def __getitem__(self, index: int | slice) -> "Run | Runs":
        return (
            Runs(self._runs[index], self._keep) if isinstance(index, slice) else self._runs[index]
        )

    def by_arm(self) -> dict[str, list[Run]]:
        """The runs of each arm, in the order of their seeds."""
        return group(self._runs)

    def table(self, target: float = 0.85) -> Table:
        """Learning time to a target accuracy, final accuracies, rounds and energy, means over seeds
        with intervals.
        """
        if not 0.0 < target <= 1.0:
            raise AutoFLError(f"target {target}: must lie between 0 and 1, for example 0.85")
        return table(summarise(self._runs, target))

    def plot(self, x: str = "sim_time", y: str = "adapted_accuracy") -> Figure:
        """Any two columns of the rounds, a curve for each arm."""
        return plot(self._runs, x, y)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def __repr__(self) -> str:
        return f"{len(self)} runs\n{self.table()}"


def simulation_of(
    arm: Arm,
    cell: Cell,
    data: FederatedData,
    model: ModelFactory | nn.Module,
    *,
    seed: int = 1,
    stop: Stop | None = None,
    channel: Channel | None = None,
    evaluator: Evaluator | None = None,
    evaluate_every: int = 5,
    engine: str = "auto",
    outage: Outage = "skip",
) -> Simulation:
    """One run from objects: `for record, state in simulate(simulation_of(arm, cell, data, mlp)):
    ...`

    D_i comes from the data, Z from the model and the compressor. A model that is already made keeps
    its weights; a factory's are drawn from the seed.

    Args:
        stop: by default after 200 rounds.
        channel: by default the paper's, path loss times Rayleigh(40).
        evaluator: by default adapts with the algorithm's own inner_lr, 0.03 where it has none.
    """
    for value, kind in ((arm, Arm), (cell, Cell), (data, FederatedData)):
        if not isinstance(value, kind):
            raise AutoFLError(
                f"{type(value).__name__} given where {kind.__name__} is needed: (arm, cell, data, model)"
            )
    if not callable(model):
        raise AutoFLError(f"model: {model!r}; give a function such as fl.mlp, or a torch.nn.Module")
    check_part("channel", channel or DEFAULT_CHANNEL)
    algorithm = arm.algorithm
    if algorithm is None:
        raise AutoFLError("arm: it has no algorithm, so there is nothing to simulate")
    if cell.num_ue != data.partition.num_ue:
        raise AutoFLError(
            f"the cell has {cell.num_ue} UEs, the data {data.partition.num_ue}; give both the same num_ue"
        )
    if isinstance(model, nn.Module):
        made = model
    else:
        made = build(model, data.sample_shape, data.num_classes, stream(seed, "init"))
    check_model(made, data.sample_shape, data.num_classes)
    made = made.to(data.x.device)
    weights = num_weights(algorithm.init(params_of(made, data.dtype)).sent)
    fitted = replace(
        cell,
        data_size=data.partition.train_size.astype(float),
        update_bits=np.array(update_bits(weights, arm.compressor)),
        num_weights=float(weights),
        downlink_bits=downlink_bits(weights, arm.downlink),
    )
    return assemble(
        arm,
        fitted,
        channel or DEFAULT_CHANNEL,
        data,
        made,
        seed=seed,
        stop=stop or Stop(200),
        outage=outage,
        evaluate_every=evaluate_every,
        evaluator=evaluator or Evaluator(inner_lr=float(getattr(algorithm, "inner_lr", 0.03))),
        engine=engine,
    )


def compare(
    arms: Mapping[str, Arm],
    cell: Cell,
    data: FederatedData,
    model: ModelFactory | nn.Module,
    *,
    rounds: int = 200,
    seeds: int | Sequence[int] = 3,
    channel: Channel | None = None,
    stop: Stop | None = None,
    evaluator: Evaluator | None = None,
    evaluate_every: int = 5,
    outage: Outage = "skip",
    folder: PathLike | None = None,
    progress: bool | OnProgress = True,
) -> Runs:
    """Every arm with every seed over the same cell and data; a seed decides selection, channels,
    batches and weights.

    Args:
        seeds: how many (1, 2, ...), or which.
        stop: instead of `rounds`.
        evaluator: the same for all arms; by default one adaptation step with the largest inner_lr
            among them.
        folder: where the run folders go; by default they live as long as the result.
        progress: a bar, nothing, or a function that is told after each evaluation.
    """
    if not isinstance(arms, Mapping):
        raise AutoFLError(
            f"compare: arms is a {type(arms).__name__}; give a name to each, {{'mine': Arm(...)}}"
        )
    if not arms:
        raise AutoFLError(
            "compare: no arms; give at least one, such as {'mine': Arm(FedAvg(0.07), FixedPlanner(40))}"
        )
    chosen = list(range(1, seeds + 1)) if isinstance(seeds, int) else list(seeds)
    stop = stop or Stop(rounds)
    rates = [float(getattr(arm.algorithm, "inner_lr", 0.0)) for arm in arms.values()]
    evaluator = evaluator or Evaluator(inner_lr=max(rates) or 0.03)
    temporary = tempfile.TemporaryDirectory() if folder is None else None
    place = Path(temporary.name) if temporary is not None else Path(str(folder))
    files = file_names(arms)
    runs = []
    with _shown(progress, len(arms) * len(chosen) * stop.rounds) as tell:
        for seed in chosen:
            for label, arm in arms.items():
                sim = simulation_of(
                    arm,
                    cell,
                    data,
                    model,
                    seed=seed,
                    stop=stop,
                    channel=channel,
                    evaluator=evaluator,
                    evaluate_every=evaluate_every,
                    outage=outage,
                )
                where = inside(place, f"{files[label]}-seed{seed}")
                on_round = _telling(tell, f"{label} seed {seed}", stop.rounds)
                runs.append(
                    write_run(
                        sim, where, tomli_w.dumps(_config(sim)), _manifest(label, sim), on_round
                    )
                )
    return Runs(runs, temporary)


def _config(sim: Simulation) -> dict[str, Any]:
    """What TOML can say of a run from objects, the same for all arms; the manifest has the parts."""
    stop = {name: value for name, value in sim.stop.__dict__.items() if value is not None}
    return {
        FROM_OBJECTS: True,  # which `load_settings` refuses: the parts are not in here
        "seed": sim.seed,
        "data": {"name": sim.data.name},
        "stop": stop,
        "evaluation": {"every": sim.evaluate_every, "adapt_samples": sim.evaluator.adapt_samples},
    }


def _manifest(label: str, sim: Simulation) -> dict[str, Any]:
    parts = {
        name: {"name": repr(part)} for name, part in sim.arm.__dict__.items() if part is not None
    }
    parts["channel"] = {"name": repr(sim.channel)}
    about = {
        "algorithm": label,
        "label": label,
        "seed": sim.seed,
        "own": sorted(parts),
        "parts": parts,
    }
    return {**about, **facts_of(sim)}


@contextlib.contextmanager
def _shown(progress: bool | OnProgress, total_rounds: int) -> Iterator[OnProgress | None]:
    if callable(progress):
        yield progress
    elif progress:
        with ProgressBar(total_rounds, each_run=False) as bar:
            yield bar
    else:
        yield None


def _telling(
    tell: OnProgress | None, label: str, num_rounds: int
) -> Callable[[Round], None] | None:
    if tell is None:
        return None
    begin = time.perf_counter()

    def on_round(record: Round) -> None:
        if record.evaluation is not None:
            tell(Progress.of(label, num_rounds, record, time.perf_counter() - begin))

    return on_round
