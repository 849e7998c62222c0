"""A device: its own data, and what it measures. The data never leaves it."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autofl.config import Settings
from autofl.data import Dataset, Partition, read_device
from autofl.data.federated import PixelSums, column_statistics, is_table, pixel_sums
from autofl.data.partition import TRAIN_SHARE
from autofl.errors import AutoFLError
from autofl.experiments.data import build_partition, loaded_from
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
        if self.dataset.x.dtype != np.uint8:
            return None
        return pixel_sums(self.dataset, self.partition.train)

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
    return _alone(ue, dataset, train, test)


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
    return _alone(ue, dataset, partition.train_of(ue), partition.test_of(ue))


def _alone(ue: int, dataset: Dataset, train: IntArray, test: IntArray) -> Device:
    """The device that has these samples, in a partition where nobody before it has any."""
    nobody = np.zeros(ue + 1, dtype=np.int64)
    of_train = np.append(nobody, len(train))
    of_test = np.append(nobody, len(test))
    return Device(ue, dataset, Partition(train, of_train, test, of_test))


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
        measured = {"train_time": time.perf_counter() - self.begin}
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
