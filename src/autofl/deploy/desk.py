"""What a device has at hand from one order to the next: its samples, the model, what trains and
evaluates it.

A process that Flower starts for one message builds it for that message; one that holds a stream
keeps it for the run.
"""

import logging
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, RecordDict
from torch import nn

from autofl.algorithms import Algorithm, at_round, is_independent, split_of
from autofl.compressors import Compressor
from autofl.config import Settings
from autofl.data.federated import FederatedData, PixelSums, pool_of
from autofl.deploy.arrays import checked_params, pixels_of
from autofl.deploy.device import dealt_device, open_device
from autofl.deploy.messages import Form, Order, RefusedError
from autofl.deploy.run_config import settings_of
from autofl.engines import (
    ClientMemory,
    CompressedUpdates,
    Engine,
    Updates,
    make_engine,
    pick_engine,
    use_machine,
)
from autofl.engines.low_rank import low_rank_layers
from autofl.errors import AutoFLError
from autofl.evaluation import PersonalModels, PreparedEvaluator, draw_piece, personal_models
from autofl.experiments.build import build_algorithm, build_evaluator, build_model
from autofl.experiments.cell import build_compressor
from autofl.models import Params
from autofl.models import params_of as params_of_model
from autofl.quality import Evaluation

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
        self.compressor: Compressor | None = build_compressor(settings)
        self._learner: tuple[object, Learner] | None = None

    def learner(self, content: RecordDict) -> "Learner":
        """The server's model and this device's samples for it, by the number of classes and pixel
        sums that came.

        The server knows how many classes there are; the form of everything else follows from the
        settings and the device's own samples.
        """
        num_classes = Form.of(content).num_classes
        dataset = self.device.dataset
        if num_classes < dataset.num_classes:
            raise RefusedError(
                f"a model of {num_classes} classes; the samples here have {dataset.num_classes}"
            )
        arrays = content.array_records.get("pixels", ArrayRecord())
        key = num_classes, tuple(array.data for _, array in sorted(arrays.items()))
        if self._learner is None or self._learner[0] != key:  # what was checked once is not again
            sums = pixels_of(content, dataset.sample_shape)
            self._learner = key, Learner(self, num_classes, sums)
        return self._learner[1]


class Learner:
    """A model and the samples it learns from."""

    def __init__(self, desk: Desk, num_classes: int, sums: PixelSums | None) -> None:
        """Images are standardised by these sums, or by this device's own without any."""
        settings = desk.settings
        device = desk.device
        dataset = replace(device.dataset, num_classes=num_classes)
        by = (sums or device.sums()) if settings.data.standardise else None
        self._desk = desk
        self._data: FederatedData = pool_of(dataset, device.partition, by)
        self._model: nn.Module = build_model(settings, dataset.sample_shape, num_classes)
        self._params = params_of_model(self._model)

    @cached_property
    def _engine(self) -> Engine:
        choice = self._desk.settings.learning.engine
        return make_engine(pick_engine(choice, self._model, self._desk.algorithm), self._model)

    @cached_property
    def _like(self) -> Params:
        return self._desk.algorithm.init(self._params).sent

    @cached_property
    def _usual_evaluator(self) -> PreparedEvaluator:
        return self._prepared(None)

    def sent(self, content: RecordDict) -> Params:
        """The model to train from as received, in the form of `State.sent`, checked."""
        return checked_params(content, self._like)

    def train(self, sent: Params, order: Order, memory: ClientMemory) -> Updates:
        """The client update of the simulator, by the simulator's engine, on the samples the
        simulator would draw.
        """
        desk = self._desk
        device = desk.device
        algorithm = desk.algorithm
        if order.num_samples > device.data_size:
            raise AutoFLError(
                f"UE {device.ue} is told to train on {order.num_samples} of {device.data_size} samples"
            )
        ue = np.array([device.ue])
        batches = self._data.draw(
            ue,
            np.array([order.num_samples]),
            order.local_steps,
            desk.settings.seed,
            order.round,
            split_of(algorithm),
            is_independent(algorithm),
        )
        return self._engine(at_round(algorithm, order.round, sent), sent, batches, ue, memory)

    def pack(
        self, updates: Updates, compressor: Compressor, order: Order, memory: ClientMemory
    ) -> bytes:
        """The bytes of this UE's update, rounded as the simulator would."""
        bits = np.array([order.bits_per_weight])
        seed = self._desk.settings.seed
        compressed = CompressedUpdates(updates, compressor, bits, seed, order.round, memory)
        [(_, own)] = compressed.messages()
        return own.pack()

    def evaluate(self, content: RecordDict, memory: ClientMemory) -> Evaluation:
        """The quality of the model that was received, on this UE's samples alone. Where an algorithm
        has models of its own for a UE, what evaluates depends on the model.
        """
        params = checked_params(content, self._params)
        personal = personal_models(self._desk.algorithm, self._model, params)
        evaluator = self._usual_evaluator if personal is None else self._prepared(personal)
        return evaluator(params, memory)

    def _prepared(self, personal: PersonalModels | None) -> PreparedEvaluator:
        desk = self._desk
        evaluator = build_evaluator(desk.settings)
        ue = np.array([desk.device.ue])
        piece = draw_piece(evaluator, self._data, desk.settings.seed, ue)
        layers = low_rank_layers(self._model) if personal is None else None
        return PreparedEvaluator(evaluator, self._model, self._data, (piece,), layers, personal)


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
