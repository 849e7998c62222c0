"""What a device has at hand from one order to the next: its samples, the model, what trains and
evaluates it.

A process that Flower starts for one message builds it for that message; one that holds a stream
keeps it for the run.
"""

import logging
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path

from flwr.app import ArrayRecord, Context, RecordDict
from torch import nn

from autofl.algorithms import Algorithm
from autofl.compressors import Compressor
from autofl.config import Settings
from autofl.data.federated import FederatedData, PixelSums
from autofl.deploy.device import dealt_device, open_device
from autofl.deploy.messages import checked_params, pixels_of
from autofl.deploy.run_config import settings_of
from autofl.deploy.schema import FIELDS, RefusedError, read
from autofl.engines import Engine, make_engine, pick_engine, use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import PreparedEvaluator, personal_models
from autofl.experiments.build import build_algorithm, build_evaluator, build_model
from autofl.experiments.cell import build_compressor
from autofl.models import Params
from autofl.models import params_of as params_of_model

log = logging.getLogger("autofl")

PARTITION = "partition-id"
"""Flower's name for a node's number, where a node has a part of a data set that all of them know.
"""


class Desk:
    """A device in a run, by the run's settings."""

    def __init__(self, settings: Settings, path: str, ue: int) -> None:
        """Without a path, the data are those that the settings deal out to this UE, as in a
        simulation.
        """
        use_machine(settings.simulation.threads)
        device = open_device(path, ue, settings.seed) if path else dealt_device(settings, ue)
        self.settings = settings
        self.device = replace(device, dataset=device.dataset.taken_as(settings.data.values))
        if settings.data.standardise and (far := device.far_columns()):
            log.warning("%s: %s", path, far)
        self.algorithm: Algorithm = build_algorithm(settings)
        self._task: tuple[tuple[int, tuple[bytes, ...]], Task] | None = None

    @cached_property
    def compressor(self) -> Compressor | None:
        return build_compressor(self.settings)

    def task(self, content: RecordDict) -> "Task":
        """The server's model and this device's samples for it, by the number of classes and pixel
        sums that came.

        The server knows how many classes there are; the form of everything else follows from the
        settings and the device's own samples.
        """
        num_classes = read(content, "model", FIELDS["model"])["num-classes"]
        dataset = self.device.dataset
        if num_classes < dataset.num_classes:
            raise RefusedError(
                f"a model of {num_classes} classes; the samples here have {dataset.num_classes}"
            )
        arrays = content.array_records.get("pixels", ArrayRecord())
        key = num_classes, tuple(array.data for _, array in sorted(arrays.items()))
        if (
            self._task is None or self._task[0] != key
        ):  # what was checked once is not looked at again
            self._task = key, Task(self, num_classes, pixels_of(content, dataset.sample_shape))
        return self._task[1]


class Task:
    """A model and the samples it learns from."""

    def __init__(self, desk: Desk, num_classes: int, sums: PixelSums | None) -> None:
        settings = desk.settings
        device = desk.device
        self._desk = desk
        self.data: FederatedData = device.data(num_classes, sums, settings.data.standardise)
        self.model: nn.Module = build_model(settings, device.dataset.sample_shape, num_classes)
        self._params = params_of_model(self.model)

    @cached_property
    def engine(self) -> Engine:
        settings = self._desk.settings
        return make_engine(
            pick_engine(settings.learning.engine, self.model, self._desk.algorithm), self.model
        )

    @cached_property
    def _like(self) -> Params:
        return self._desk.algorithm.init(self._params).sent

    @cached_property
    def _prepared(self) -> PreparedEvaluator:
        settings = self._desk.settings
        return self._desk.device.prepare(
            build_evaluator(settings), self.model, self.data, settings.seed
        )

    def sent(self, content: RecordDict) -> Params:
        """The model to train from as received, in the form of `State.sent`, checked."""
        return checked_params(content, self._like)

    def judged(self, content: RecordDict) -> Params:
        """The model to evaluate as received, checked."""
        return checked_params(content, self._params)

    def evaluator(self, params: Params) -> PreparedEvaluator:
        """What evaluates this model; where an algorithm has models of its own for a UE it depends
        on the model.
        """
        desk = self._desk
        personal = personal_models(desk.algorithm, self.model, params)
        if personal is None:
            return self._prepared
        seed = desk.settings.seed
        return desk.device.prepare(
            build_evaluator(desk.settings), self.model, self.data, seed, personal
        )


@lru_cache(maxsize=8)
def _made(text: str, path: str, changed: int, ue: int) -> Desk:
    return Desk(settings_of(text), path, ue)


def desk_of(context: Context) -> Desk:
    """The desk of this node's device; made again if the data file has changed."""
    node = context.node_config
    ue = node.get("ue", node.get(PARTITION))
    path = str(node.get("data", ""))
    if ue is None or not (path or PARTITION in node):
        raise AutoFLError(
            "this node has no UE number or data; start it with --node-config 'ue=0 data=\"own.npz\"'"
        )
    changed = Path(path).stat().st_mtime_ns if Path(path).is_file() else 0
    return _made(str(context.run_config["settings"]), path, changed, int(ue))
