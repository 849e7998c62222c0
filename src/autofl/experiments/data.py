"""From settings to a data set, a partition of it, and a pool of samples. PyTorch is loaded for the pool alone."""

from pathlib import Path
from typing import TYPE_CHECKING

from autofl.config import Settings
from autofl.data import ByLabels, ByOwner, Dataset, Dirichlet, Iid, Partition, PartitionLaw, load, read_npz
from autofl.errors import AutoFLError
from autofl.units import IntArray

if TYPE_CHECKING:
    from autofl.data.federated import FederatedData


def load_data(settings: Settings) -> tuple[Dataset, IntArray | None]:
    """The data set of these settings and, for own arrays that bring one, the owner of each sample."""
    if settings.data.file is not None:
        return read_npz(Path(settings.data.file))
    folder = Path(settings.data.folder) if settings.data.folder is not None else None
    return load(settings.data.name, folder), None


def build_law(settings: Settings, owner: IntArray | None = None) -> PartitionLaw:
    """The settings' law of who owns which samples."""
    data = settings.data
    if data.partition == "iid":
        return Iid()
    if data.partition == "labels":
        return ByLabels(data.labels)
    if data.partition == "dirichlet":
        return Dirichlet(data.concentration)
    if owner is None:
        raise AutoFLError(f'{data.file}: partition = "own" needs an array ue in the file')
    return ByOwner(owner)


def build_partition(settings: Settings, dataset: Dataset, owner: IntArray | None = None) -> Partition:
    """Who owns which samples, by the settings' law and seed."""
    return dataset.partition(build_law(settings, owner), settings.cell.count, settings.seed)


def build_data(settings: Settings, dataset: Dataset, owner: IntArray | None = None) -> "FederatedData":
    """Pool of the samples under that partition."""
    law, standardise = build_law(settings, owner), settings.data.standardise
    return dataset.federate(law, settings.cell.count, settings.seed, standardise)
