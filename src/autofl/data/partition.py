"""Who owns which samples: i.i.d., l labels with uneven sizes, Dirichlet, or a user's own list."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array, IntArray

TRAIN_SHARE = 0.75
"""Each UE trains on 75 % of its own samples and is tested on the rest (Section V-A2)."""


@dataclass(frozen=True)
class Partition:
    """Sample indices of each UE, training and test, as one array each plus where every UE's part begins."""

    train: IntArray  # indices into the data set, UE after UE
    train_start: IntArray  # shape (num_ue + 1,)
    test: IntArray
    test_start: IntArray

    @property
    def num_ue(self) -> int:
        return len(self.train_start) - 1

    @property
    def train_size(self) -> IntArray:
        """D_i, shape (num_ue,)."""
        return np.diff(self.train_start)

    @property
    def test_size(self) -> IntArray:
        return np.diff(self.test_start)

    def train_of(self, ue: int) -> IntArray:
        return self.train[self.train_start[ue] : self.train_start[ue + 1]]

    def test_of(self, ue: int) -> IntArray:
        return self.test[self.test_start[ue] : self.test_start[ue + 1]]


def split(owned: Sequence[IntArray], rng: np.random.Generator, train_share: float = TRAIN_SHARE) -> Partition:
    """Training and test part of each UE's own samples, drawn at random; 75 % (rounded down) to training."""
    train, test = [], []
    for index in owned:
        shuffled = rng.permutation(index)
        cut = int(train_share * len(shuffled))
        train.append(np.sort(shuffled[:cut]))
        test.append(np.sort(shuffled[cut:]))
    return Partition(*_joined(train), *_joined(test))


def _joined(parts: list[IntArray]) -> tuple[IntArray, IntArray]:
    start = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts]), start


def iid(label: IntArray, num_ue: int, rng: np.random.Generator) -> list[IntArray]:
    """Equal random portions."""
    return _all_own_something(np.array_split(rng.permutation(len(label)), num_ue))


def by_labels(
    label: IntArray, num_ue: int, rng: np.random.Generator, labels_per_ue: int, num_classes: int
) -> list[IntArray]:
    """UE u owns labels (u + j) mod num_classes, j < l; each class is cut into uneven pieces among its owners.

    Of `pieces` pieces each but the last is a random integer between remaining/(pieces + 1) and remaining/2: pFedMe's
    recipe, to which the paper's numbers point. The pieces go to the owners in random order, so that a UE's size
    says nothing about its number.
    """
    if not 1 <= labels_per_ue <= num_classes:
        raise AutoFLError(f"data.labels: {labels_per_ue} is not between 1 and the number of classes, {num_classes}")
    owned: list[list[IntArray]] = [[] for _ in range(num_ue)]
    for c in range(num_classes):
        owners = [u for u in range(num_ue) if (c - u) % num_classes < labels_per_ue]
        if not owners:
            continue
        samples = rng.permutation(np.flatnonzero(label == c))
        cuts = np.cumsum(_uneven_sizes(len(samples), len(owners), rng))[:-1]
        for u, piece in zip(rng.permutation(owners), np.split(samples, cuts), strict=True):
            owned[u].append(piece)
    return _all_own_something([np.concatenate(pieces) if pieces else np.empty(0, np.int64) for pieces in owned])


def _uneven_sizes(total: int, pieces: int, rng: np.random.Generator) -> list[int]:
    sizes = []
    for _ in range(pieces - 1):
        low = total // (pieces + 1)
        sizes.append(int(rng.integers(low, max(total // 2, low + 1))))
        total -= sizes[-1]
    return [*sizes, total]


def dirichlet(
    label: IntArray, num_ue: int, rng: np.random.Generator, concentration: float, num_classes: int
) -> list[IntArray]:
    """Each class is shared among the UEs in proportions drawn from Dirichlet(concentration)."""
    owned: list[list[IntArray]] = [[] for _ in range(num_ue)]
    for c in range(num_classes):
        samples = rng.permutation(np.flatnonzero(label == c))
        share = rng.dirichlet(np.full(num_ue, concentration))
        cuts = np.round(np.cumsum(share)[:-1] * len(samples)).astype(np.int64)
        for u, piece in enumerate(np.split(samples, cuts)):
            owned[u].append(piece)
    return _all_own_something([np.concatenate(pieces) for pieces in owned])


def by_owner(owner: IntArray) -> list[IntArray]:
    """A user's own partition: owner[s] is the UE that owns sample s."""
    order = np.argsort(owner, kind="stable")
    cuts = np.searchsorted(owner[order], np.arange(1, int(owner.max()) + 1))
    return _all_own_something(np.split(order, cuts))


def _all_own_something(owned: Sequence[IntArray]) -> list[IntArray]:
    poor = [u for u, index in enumerate(owned) if len(index) < 2]
    if poor:
        raise AutoFLError(
            f"the partition leaves {len(poor)} of {len(owned)} UEs (UE {poor[0]} first) without 2 samples, one to train"
            " and one to test on; use fewer UEs, more data, or another partition (data.partition)"
        )
    return [np.asarray(index, dtype=np.int64) for index in owned]


def label_counts(partition: Partition, label: IntArray, num_classes: int) -> Array:
    """Number of samples (training and test) of each label at each UE, shape (num_ue, num_classes)."""
    counts = [
        np.bincount(label[np.concatenate([partition.train_of(u), partition.test_of(u)])], minlength=num_classes)
        for u in range(partition.num_ue)
    ]
    return np.asarray(counts, dtype=np.float64)
