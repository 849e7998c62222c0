"""From settings to a data set, a partition of it, and a pool of samples. PyTorch is loaded for the
pool alone.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofl.config import CellSettings, DataSettings, Settings
from autofl.data import CATALOG, Dataset, Partition, PartitionLaw, label_counts
from autofl.errors import AutoFLError
from autofl.registry import find
from autofl.units import Array, IntArray

if TYPE_CHECKING:
    from autofl.data.federated import FederatedData


def load_data(settings: Settings) -> tuple[Dataset, NDArray[Any] | None]:
    """The data set of these settings and, for own arrays that bring one, the owner of each sample."""
    data = settings.data
    part = find("data", settings.data.name)
    context = {
        "folder": Path(data.folder) if data.folder is not None else None,
        "path": Path(data.file) if data.file is not None else None,
    }
    loaded = part.build(data.given(part), context)
    dataset, owner = loaded if isinstance(loaded, tuple) else (loaded, None)
    if not isinstance(dataset, Dataset):
        raise AutoFLError(
            f"data {part.name}: it must give an autofl.Dataset, not {type(dataset).__name__}"
        )
    return dataset, owner


@lru_cache(maxsize=1)
def loaded_from(source: DataSettings) -> tuple[Dataset, NDArray[Any] | None]:
    """The same for a `DataSettings.source`, kept until another is asked for: runs and networks
    share its samples.
    """
    return load_data(Settings(data=source))


@lru_cache(maxsize=8)
def contents_of(source: DataSettings) -> str | None:
    """What a user's own data hold, in words with a sum of their samples; None where they are not at
    hand.

    The data sets of the package go by their names, a user's own by this: another file may have the
    same name.
    """
    if source.name == "mnist5k" or source.name in CATALOG:
        return None
    try:
        dataset, owner = loaded_from(source)
    except AutoFLError:
        return None
    total = hashlib.sha256()
    for array in (dataset.x, dataset.y, *(() if owner is None else (owner,))):
        total.update(
            f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        )
    shape = "x".join(map(str, dataset.sample_shape or (1,)))
    return f"{len(dataset.y)} samples of {shape} numbers in {dataset.num_classes} classes, {total.hexdigest()[:16]}"


def build_law(settings: Settings, owner: NDArray[Any] | None = None) -> PartitionLaw:
    """The settings' law of who owns which samples."""
    data = settings.data
    if data.partition == "own" and owner is None:
        raise AutoFLError(f'{data.file}: partition = "own" needs an array ue in the file')
    context = {"labels": data.labels, "concentration": data.concentration, "owner": owner}
    part = find("partition", data.partition)
    law: PartitionLaw = part.build(data.given(part), context)
    return law


def build_partition(
    settings: Settings, dataset: Dataset, owner: NDArray[Any] | None = None
) -> Partition:
    """Who owns which samples, by the settings' law and seed."""
    return dataset.partition(build_law(settings, owner), settings.cell.count, settings.seed)


def owned_by(settings: Settings) -> IntArray:
    """D_i, the training samples of each UE, as a simulation of these settings has them; NumPy
    alone.
    """
    return _counted(settings.data, settings.cell.count, settings.seed)[0]


def labels_of(settings: Settings) -> Array:
    """Samples of each label at each UE, shape (num_ue, num_classes), as a simulation has them;
    NumPy alone.
    """
    return _counted(settings.data, settings.cell.count, settings.seed)[1]


@lru_cache(maxsize=100)
def _counted(data: DataSettings, num_ue: int, seed: int) -> tuple[IntArray, Array]:
    """D_i and the labels of a partition; a choice among many plans asks for the same few again and
    again.
    """
    dataset, owner = loaded_from(data.source())
    partition = build_partition(
        Settings(data=data, cell=CellSettings(num_ue=num_ue), seed=seed), dataset, owner
    )
    return partition.train_size, label_counts(partition, dataset.y, dataset.num_classes)


def build_data(
    settings: Settings, dataset: Dataset, owner: NDArray[Any] | None = None
) -> "FederatedData":
    """The pool of the samples under the settings' partition."""
    law = build_law(settings, owner)
    standardise = settings.data.standardise
    dataset = dataset.taken_as(settings.data.values)
    return dataset.federate(law, settings.cell.count, settings.seed, standardise)


def load_federated(settings: Settings, dataset: Dataset | None = None) -> "FederatedData":
    """The data of these settings, or a user's own data set under their partition."""
    loaded, owner = (dataset, None) if dataset is not None else load_data(settings)
    return build_data(settings, loaded, owner)
