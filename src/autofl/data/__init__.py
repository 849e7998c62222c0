"""Data sets, who owns which samples, and the batches drawn from them."""

from autofl.data.batch import Batch, Draw, MetaBatch
from autofl.data.catalog import CATALOG, MNIST5K_TITLE, cache_folder, fetch, find, load
from autofl.data.dataset import Dataset, read_cifar10, read_idx, read_mnist, read_npz
from autofl.data.federated import FederatedData, federate
from autofl.data.partition import Partition, by_labels, by_owner, dirichlet, iid, label_counts, split

__all__ = [
    "CATALOG",
    "MNIST5K_TITLE",
    "Batch",
    "Dataset",
    "Draw",
    "FederatedData",
    "MetaBatch",
    "Partition",
    "by_labels",
    "by_owner",
    "cache_folder",
    "dirichlet",
    "federate",
    "fetch",
    "find",
    "iid",
    "label_counts",
    "load",
    "read_cifar10",
    "read_idx",
    "read_mnist",
    "read_npz",
    "split",
]
