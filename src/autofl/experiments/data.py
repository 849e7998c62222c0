"""From settings to a data set and a partition of it. NumPy only."""

from autofl.config import Settings
from autofl.data import Dataset, Partition, by_labels, by_owner, dirichlet, iid, load, read_npz, split
from autofl.errors import AutoFLError
from autofl.rng import stream
from autofl.units import IntArray


def load_data(settings: Settings) -> tuple[Dataset, IntArray | None]:
    """The data set of these settings and, for own arrays that bring one, the owner of each sample."""
    if settings.data.file is not None:
        return read_npz(settings.data.file)
    return load(settings.data.name, settings.data.folder), None


def build_partition(settings: Settings, dataset: Dataset, owner: IntArray | None = None) -> Partition:
    """Who owns which samples, by the settings' law and seed."""
    data, num_ue, rng = settings.data, settings.cell.count, stream(settings.seed, "partition")
    if data.partition == "iid":
        owned = iid(dataset.y, num_ue, rng)
    elif data.partition == "labels":
        owned = by_labels(dataset.y, num_ue, rng, data.labels, dataset.num_classes)
    elif data.partition == "dirichlet":
        owned = dirichlet(dataset.y, num_ue, rng, data.concentration, dataset.num_classes)
    elif owner is None:
        raise AutoFLError(f'{data.file}: partition = "own" needs an array ue in the file')
    else:
        owned = by_owner(owner)
        if len(owned) != num_ue:
            raise AutoFLError(f"{data.file}: ue names {len(owned)} UEs, the cell has {num_ue}; set cell.num_ue")
    return split(owned, stream(settings.seed, "split"))
