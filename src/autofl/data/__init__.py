"""Data sets and who owns which samples. What is exported here is NumPy; `batch` and `federated`
need PyTorch.
"""

from autofl.data.catalog import CATALOG, MNIST5K_TITLE, data_folders, fetch, find, load
from autofl.data.dataset import (
    Dataset,
    read_cifar10,
    read_device,
    read_idx,
    read_mnist,
    read_npz,
    write_device,
)
from autofl.data.partition import (
    ByLabels,
    ByOwner,
    Dirichlet,
    Iid,
    Partition,
    PartitionLaw,
    label_counts,
    split,
)

__all__ = [
    "CATALOG",
    "MNIST5K_TITLE",
    "ByLabels",
    "ByOwner",
    "Dataset",
    "Dirichlet",
    "Iid",
    "Partition",
    "PartitionLaw",
    "data_folders",
    "fetch",
    "find",
    "label_counts",
    "load",
    "read_cifar10",
    "read_device",
    "read_idx",
    "read_mnist",
    "read_npz",
    "split",
    "write_device",
]
