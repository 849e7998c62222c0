"""Who owns which samples: i.i.d., l labels with uneven sizes, Dirichlet, or a user's own list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.ranges import Checked, Range
from autofl.units import Array, IntArray

TRAIN_SHARE = 0.75
"""Each UE trains on 75 % of its own samples and is tested on the rest (Section V-A2)."""
MIN_OWNED = 2
"""Samples a UE must own: one to train and one to test on."""


@dataclass(frozen=True)
class Partition:
    """Sample indices of each UE, training and test, as one array each plus where every UE's part
    begins.
    """

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


def split(owned: Sequence[IntArray], rng: np.random.Generator) -> Partition:
    """Training and test part of each UE's own samples, drawn at random; 75 % (rounded down) to
    training.
    """
    train = []
    test = []
    for index in owned:
        shuffled = rng.permutation(index)
        cut = int(TRAIN_SHARE * len(shuffled))
        train.append(np.sort(shuffled[:cut]))
        test.append(np.sort(shuffled[cut:]))
    return Partition(*_joined(train), *_joined(test))


def _joined(parts: list[IntArray]) -> tuple[IntArray, IntArray]:
    start = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts]), start


class PartitionLaw(Protocol):
    """A law of who owns which samples."""

    def __call__(
        self, label: IntArray, num_classes: int, num_ue: int, rng: np.random.Generator
    ) -> list[IntArray]:
        """Indices of each UE's own samples.

        Args:
            label: of every sample, shape (num_samples,), between 0 and num_classes - 1.
        """
        ...


@dataclass(frozen=True)
class Iid:
    """Equal random portions."""

    def __call__(
        self, label: IntArray, num_classes: int, num_ue: int, rng: np.random.Generator
    ) -> list[IntArray]:
        return _all_own_something(np.array_split(rng.permutation(len(label)), num_ue))


@dataclass(frozen=True)
class ByLabels(Checked):
    """UE u owns labels (u + j) mod num_classes, j < l; each class is cut into uneven pieces among
    its owners.

    Of `pieces` pieces each but the last is a random integer between remaining/(pieces + 1) and
    remaining/2: pFedMe's recipe, to which the paper's numbers point. The pieces go to the owners in
    random order, so that a UE's size says nothing about its number.

    With many owners the recipe may leave nothing for the last. If a UE is left with fewer than 2
    samples, all is drawn again, with at least half an equal share of a class for each of its
    owners.
    """

    labels: Annotated[int, Range(ge=1), "l, labels of each UE"] = 5

    def __call__(
        self, label: IntArray, num_classes: int, num_ue: int, rng: np.random.Generator
    ) -> list[IntArray]:
        if self.labels > num_classes:
            raise AutoFLError(
                f"labels: {self.labels} is too many; the data has {num_classes} classes, give no more"
            )
        owned = self._draw(label, num_classes, num_ue, rng, sure=False)
        if _poor(owned):
            owned = self._draw(label, num_classes, num_ue, rng, sure=True)
        return _all_own_something(owned)

    def _draw(
        self, label: IntArray, num_classes: int, num_ue: int, rng: np.random.Generator, sure: bool
    ) -> list[IntArray]:
        needed = -(-MIN_OWNED // self.labels)  # of each label, to own enough of all together
        owned: list[list[IntArray]] = [[] for _ in range(num_ue)]
        for c in range(num_classes):
            owners = [u for u in range(num_ue) if (c - u) % num_classes < self.labels]
            if not owners:
                continue
            samples = rng.permutation(np.flatnonzero(label == c))
            share = len(samples) // len(owners)
            least = max(share // 2, min(needed, share)) if sure else 0
            cuts = np.cumsum(_uneven_sizes(len(samples), len(owners), least, rng))[:-1]
            for u, piece in zip(rng.permutation(owners), np.split(samples, cuts), strict=True):
                owned[u].append(piece)
        return [np.concatenate(pieces) if pieces else np.empty(0, np.int64) for pieces in owned]


def _uneven_sizes(total: int, pieces: int, least: int, rng: np.random.Generator) -> list[int]:
    """Sizes by pFedMe's recipe, none below `least`; `pieces` times `least` must not be more than
    the total.
    """
    sizes = []
    for later in range(pieces - 1, 0, -1):
        low = max(total // (pieces + 1), least)
        most = total - later * least  # leaves every later piece its least
        sizes.append(int(rng.integers(low, max(min(total // 2, most + 1), low + 1))))
        total -= sizes[-1]
    return [*sizes, total]


@dataclass(frozen=True)
class Dirichlet(Checked):
    """Each class is shared among the UEs in proportions drawn from Dirichlet(concentration)."""

    concentration: Annotated[float, Range(gt=0), "of the Dirichlet law"] = 0.5

    def __call__(
        self, label: IntArray, num_classes: int, num_ue: int, rng: np.random.Generator
    ) -> list[IntArray]:
        owned: list[list[IntArray]] = [[] for _ in range(num_ue)]
        for c in range(num_classes):
            samples = rng.permutation(np.flatnonzero(label == c))
            share = rng.dirichlet(np.full(num_ue, self.concentration))
            cuts = np.round(np.cumsum(share)[:-1] * len(samples)).astype(np.int64)
            for u, piece in enumerate(np.split(samples, cuts)):
                owned[u].append(piece)
        return _all_own_something([np.concatenate(pieces) for pieces in owned])


@dataclass(frozen=True, eq=False)  # arrays do not compare to one truth value
class ByOwner:
    """A user's own partition: owner[s] says who owns sample s, by number or by name; UEs come in
    their order.
    """

    owner: NDArray[Any]

    def __post_init__(self) -> None:
        kind = self.owner.dtype.kind
        if (
            self.owner.ndim != 1
            or kind not in "iuUS"
            or (kind == "i" and self.owner.min(initial=0) < 0)
        ):
            raise AutoFLError(
                f"owner: {self.owner.dtype} of shape {self.owner.shape}; give a whole number >= 0 or a name for each"
                " sample"
            )

    def __call__(
        self, label: IntArray, num_classes: int, num_ue: int, rng: np.random.Generator
    ) -> list[IntArray]:
        if len(self.owner) != len(label):
            raise AutoFLError(
                f"owner: {len(self.owner)} values for {len(label)} samples; give one for each"
            )
        names, ue = np.unique(self.owner, return_inverse=True)
        if len(names) != num_ue:
            raise AutoFLError(
                f"owner: the samples belong to {len(names)} UEs, the cell has {num_ue}; set cell.num_ue={len(names)}"
            )
        order = np.argsort(ue, kind="stable")
        cuts = np.searchsorted(ue[order], np.arange(1, num_ue))
        return _all_own_something(np.split(order, cuts))


by_labels = ByLabels
dirichlet = Dirichlet
iid = Iid
"""The same under the names of the paper's experiments, as a notebook writes them: `by_labels(5)`.
"""


def _poor(owned: Sequence[IntArray]) -> list[int]:
    """The UEs that own too little."""
    return [u for u, index in enumerate(owned) if len(index) < MIN_OWNED]


def _all_own_something(owned: Sequence[IntArray]) -> list[IntArray]:
    if poor := _poor(owned):
        raise AutoFLError(
            f"the partition leaves {len(poor)} of {len(owned)} UEs (UE {poor[0]} first) without {MIN_OWNED} samples,"
            " one to train and one to test on; use fewer UEs, more data, or another partition (data.partition)"
        )
    return [np.asarray(index, dtype=np.int64) for index in owned]


def label_counts(partition: Partition, label: IntArray, num_classes: int) -> Array:
    """Number of samples (training and test) of each label at each UE, shape (num_ue, num_classes)."""
    counts = [
        np.bincount(
            label[np.concatenate([partition.train_of(u), partition.test_of(u)])],
            minlength=num_classes,
        )
        for u in range(partition.num_ue)
    ]
    return np.asarray(counts, dtype=np.float64)
