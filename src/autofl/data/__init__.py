"""Data sets and who owns which samples. What is exported here is NumPy; `batch` and `federated` need PyTorch."""

from autofl.data.catalog import CATALOG, MNIST5K_TITLE, data_folders, fetch, find, load
from autofl.data.dataset import Dataset, read_cifar10, read_device, read_idx, read_mnist, read_npz, write_device
from autofl.data.partition import Partition, by_labels, by_owner, dirichlet, iid, label_counts, split

__all__ = [
    "CATALOG",
    "MNIST5K_TITLE",
    "Dataset",
    "Partition",
    "by_labels",
    "by_owner",
    "data_folders",
    "dirichlet",
    "fetch",
    "find",
    "iid",
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
