"""A device: its own data, its own update, and what it measures. The data never leaves it."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import nn

from autofl.algorithms import Algorithm, at_round, is_independent, split_of
from autofl.compressors import Compressor
from autofl.config import Settings
from autofl.data import Dataset, Partition, read_device
from autofl.data.federated import (
    FederatedData,
    PixelSums,
    column_statistics,
    is_table,
    pixel_sums,
    pool_of,
)
from autofl.data.partition import TRAIN_SHARE
from autofl.deploy.messages import Order
from autofl.engines import ClientMemory, CompressedUpdates, Engine, Updates
from autofl.engines.low_rank import low_rank_layers
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator, PersonalModels, PreparedEvaluator, draw_piece
from autofl.experiments.data import build_partition, loaded_from
from autofl.models import Params
from autofl.rng import stream
from autofl.units import IntArray, PathLike

FAR = 10.0
"""Mean and deviation of a column together above which training is slow or fails; both are 0 and 1
at best.
"""


@dataclass(frozen=True)
class Device:
    """UE number `ue` with its own samples. The number decides which samples it draws, as in the
    simulator.
    """

    ue: int
    dataset: Dataset
    partition: Partition  # in which only this UE owns anything

    @property
    def data_size(self) -> int:
        """D_i."""
        return int(self.partition.train_size[self.ue])

    def sums(self) -> PixelSums | None:
        """Sums of this device's training pixels; None where samples are used as they are."""
        return (
            pixel_sums(self.dataset, self.partition.train)
            if self.dataset.x.dtype == np.uint8
            else None
        )

    def far_columns(self) -> str | None:
        """Why a table should be standardised by its owner; None where it is no table or its scales
        are fine.
        """
        if not is_table(self.dataset):
            return None
        mean, std = column_statistics(self.dataset, self.partition.train)
        far = int(np.argmax(np.abs(mean) + std))
        if abs(mean[far]) + std[far] < FAR:
            return None
        return (
            f"column {far} of x has mean {mean[far]:.3g} and deviation {std[far]:.3g}, and a deployment uses tables as"
            " they are; standardise its columns in all files alike, by the same means and deviations"
        )

    def data(self, num_classes: int, sums: PixelSums | None, standardise: bool) -> FederatedData:
        """The samples; images are standardised by these sums, or by this device's own without any."""
        dataset = replace(self.dataset, num_classes=num_classes)
        return pool_of(dataset, self.partition, (sums or self.sums()) if standardise else None)

    def train(
        self,
        engine: Engine,
        algorithm: Algorithm,
        sent: Params,
        data: FederatedData,
        order: Order,
        seed: int,
        memory: ClientMemory,
    ) -> Updates:
        """The client update of the simulator, by the simulator's engine, on the samples the
        simulator would draw.
        """
        if not 0 < order.num_samples <= self.data_size:
            raise AutoFLError(
                f"UE {self.ue} is told to train on {order.num_samples} of {self.data_size} samples"
            )
        ue = np.array([self.ue])
        num_samples = np.array([order.num_samples])
        how = (split_of(algorithm), is_independent(algorithm))
        batches = data.draw(ue, num_samples, order.local_steps, seed, order.round, *how)
        return engine(at_round(algorithm, order.round, sent), sent, batches, ue, memory)

    def pack(
        self,
        updates: Updates,
        compressor: Compressor,
        order: Order,
        seed: int,
        memory: ClientMemory,
    ) -> bytes:
        """The bytes of this UE's update, rounded as the simulator would."""
        bits = np.array([order.bits_per_weight])
        compressed = CompressedUpdates(updates, compressor, bits, seed, order.round, memory)
        [(_, own)] = compressed.messages()
        return own.pack()

    def prepare(
        self,
        evaluator: Evaluator,
        model: nn.Module,
        data: FederatedData,
        seed: int,
        personal: PersonalModels | None = None,
    ) -> PreparedEvaluator:
        """What evaluates models on this UE's samples alone."""
        piece = draw_piece(evaluator, data, seed, np.array([self.ue]))
        layers = low_rank_layers(model) if personal is None else None
        return PreparedEvaluator(evaluator, model, data, (piece,), layers, personal)


def open_device(path: PathLike, ue: int, seed: int) -> Device:
    """The device whose data lies in this file: x, y and perhaps its own split (see `read_device`)."""
    dataset, there = read_device(path)
    if there is None:
        shuffled = stream(seed, "split", ue).permutation(len(dataset.y))
        there = np.isin(np.arange(len(shuffled)), shuffled[: int(TRAIN_SHARE * len(shuffled))])
    train = np.flatnonzero(there)
    test = np.flatnonzero(~there)
    if not len(train) or not len(test):
        raise AutoFLError(
            f"{path}: {len(dataset.y)} samples; at least 2 are needed, one to train and one to test on"
        )
    return Device(ue, dataset, Partition(train, _start(ue, train), test, _start(ue, test)))


def dealt_device(settings: Settings, ue: int) -> Device:
    """The device of a UE to which the settings deal out data: the samples that it has in a
    simulation.
    """
    dataset, owner = loaded_from(settings.data.source())
    partition = build_partition(settings, dataset, owner)
    if not 0 <= ue < partition.num_ue:
        raise AutoFLError(
            f"UE {ue}: the settings deal out data to UEs 0 to {partition.num_ue - 1} (cell.num_ue)"
        )
    train = partition.train_of(ue)
    test = partition.test_of(ue)
    return Device(ue, dataset, Partition(train, _start(ue, train), test, _start(ue, test)))


def _start(ue: int, index: IntArray) -> IntArray:
    return np.append(np.zeros(ue + 1, dtype=np.int64), len(index))


POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Meter:
    """Time and energy since it was started."""

    begin: float
    joules: float | None

    @classmethod
    def start(cls) -> "Meter":
        return cls(time.perf_counter(), machine_energy())

    def read(self) -> dict[str, float]:
        """Seconds and, where the platform has a counter that did not wrap around meanwhile, joules."""
        measured = {"train-time": time.perf_counter() - self.begin}
        joules = machine_energy()
        if self.joules is not None and joules is not None and joules >= self.joules:
            measured["energy"] = joules - self.joules
        return measured


def machine_energy() -> float | None:
    """Energy [J] this machine's processors have used so far by their own counters (RAPL); None if
    there are none.

    It counts everything that runs on the machine, and restarts from 0 when it overflows.
    """
    try:
        zones = [
            zone for zone in POWERCAP.glob("*:[0-9]*") if zone.name.count(":") == 1
        ]  # packages, not their parts
        counters = [int((zone / "energy_uj").read_text()) for zone in zones]
    except (OSError, ValueError):
        return None
    return 1e-6 * sum(counters) if counters else None
