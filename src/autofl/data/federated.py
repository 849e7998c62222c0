"""One pool of samples and an index table of who owns them: no UE has a copy of its data."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from autofl.data.batch import THIRDS, Batch, Columns, Draw, Split, draw_meta
from autofl.data.dataset import Dataset
from autofl.data.partition import Partition
from autofl.units import Array, IntArray

STD_OFFSET = 0.001
"""Added to a pixel's deviation against division by zero, in units of pixel values 0 to 255."""
SAME = 1e-6
"""The part of its mean below which a column's deviation is rounding."""
ALIGNED = 16
"""Inputs are left out so that a multiple of this many remains: products of such widths run fastest.
"""


class Scratch:
    """Memory that gathering uses again and again: asking the system for it anew costs more than the
    gathering.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, torch.dtype], Tensor] = {}

    def rows(self, purpose: str, num: int, width: int, like: Tensor, dtype: torch.dtype) -> Tensor:
        """A matrix (num, width) of any content, valid until the same purpose asks again."""
        kept = self._kept.get((purpose, dtype))
        if kept is None or kept.numel() < num * width:
            kept = torch.empty(num * width, dtype=dtype, device=like.device)
            self._kept[purpose, dtype] = kept
        return kept[: num * width].view(num, width)


@dataclass(frozen=True)
class FederatedData:
    """Samples, labels and their owners.

    Bytes stay bytes in the pool and are standardised when gathered: x * scale + shift, pixel by
        pixel.
    """

    name: str
    x: Tensor
    y: Tensor
    num_classes: int
    partition: Partition
    shift: Tensor | None = None
    scale: Tensor | None = None
    dtype: torch.dtype = torch.float32
    scratch: Scratch = field(default_factory=Scratch, compare=False, repr=False)

    def to(self, device: torch.device) -> "FederatedData":
        """The same data in the memory of a device."""
        moved = {
            name: value.to(device)
            for name in ("x", "y", "shift", "scale")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **moved, scratch=Scratch())

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @cached_property
    def columns(self) -> Columns | None:
        """The inputs worth computing with; None for all of them.

        A pixel that never changes in training is 0 for every model; of MNIST's 784 these are some
        70.
        """
        if self.scale is None or len(self.sample_shape) != 1:
            return None
        varies = self.scale != 0.0
        num = -(-(int(varies.sum()) + 1) // ALIGNED) * ALIGNED
        if num >= len(varies):
            return None
        kept = torch.argsort(~varies, stable=True)[:num]
        back = torch.full_like(varies, num - 1, dtype=torch.int64)
        back[kept] = torch.arange(num, device=back.device)
        return Columns(kept, back)

    @cached_property
    def narrow(self) -> "FederatedData":
        """The same data with `columns` alone; itself where these are all."""
        if self.columns is None or self.scale is None or self.shift is None:
            return self
        kept = self.columns.kept
        if self.x.device.type == "cpu":  # faster than PyTorch's
            x = torch.from_numpy(self.x.numpy().take(kept.numpy(), axis=1))
        else:
            x = self.x.index_select(1, kept)
        return replace(self, x=x, shift=self.shift[kept], scale=self.scale[kept], scratch=Scratch())

    def gather(self, index: IntArray, purpose: str | None = None) -> tuple[Tensor, Tensor]:
        """Samples, ready for a model, and labels at these indices.

        With a purpose, the samples are put into memory that the next call with the same purpose
        uses again.
        """
        scratch = self.scratch if purpose is not None else Scratch()
        where = torch.from_numpy(index.reshape(-1)).to(self.x.device)
        pool = self.x.view(len(self.x), -1)
        raw = scratch.rows(f"{purpose} raw", len(where), pool.shape[1], pool, pool.dtype)
        torch.index_select(pool, 0, where, out=raw)
        if self.shift is None or self.scale is None:
            x = raw
        else:
            x = scratch.rows(f"{purpose} ready", len(where), pool.shape[1], pool, self.dtype)
            torch.addcmul(self.shift, x.copy_(raw), self.scale, out=x)
        return x.view(*index.shape, *self.sample_shape), self.y[where].view(index.shape)

    def batch(self, draw: Draw, purpose: str | None = None) -> Batch:
        x, y = self.gather(draw.sample, purpose)
        return Batch(x, y, torch.from_numpy(draw.mask).to(x))

    def draw(
        self,
        ue: IntArray,
        num_samples: IntArray,
        local_steps: int | IntArray,
        seed: int,
        round_index: int,
        split: Split = THIRDS,
        independent: bool = False,
    ) -> "DrawnBatches":
        """The batches of one round: drawn now, gathered from the pool when taken."""
        draw = draw_meta(
            self.partition, ue, num_samples, local_steps, seed, round_index, split, independent
        )
        return DrawnBatches(self, draw, np.broadcast_to(np.asarray(local_steps), ue.shape))


@dataclass(frozen=True)
class RunPool:
    """The data of several runs over one pool of samples, each standardised by its own run's
    statistics.
    """

    runs: tuple[FederatedData, ...]

    @cached_property
    def _scale_and_shift(self) -> tuple[Tensor, Tensor] | None:
        pairs = [
            (run.scale, run.shift)
            for run in self.runs
            if run.scale is not None and run.shift is not None
        ]
        scale, shift = ([pair[place] for pair in pairs] for place in range(2))
        return (torch.stack(scale)[:, None], torch.stack(shift)[:, None]) if pairs else None

    def gather(self, which: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        """Samples, their own axes flattened, and labels.

        Args:
            which: the runs, shape (num_which,).
            where: indices into the pool, shape (..., num_which, num).
        """
        pool = self.runs[0]
        x = pool.x.view(len(pool.x), -1)[where].to(pool.dtype)
        if self._scale_and_shift is not None:
            scale, shift = (per_run[which] for per_run in self._scale_and_shift)
            torch.addcmul(shift, x, scale, out=x)
        return x, pool.y[where]


@dataclass(frozen=True)
class DrawnBatches:
    """Batches as a table of indices into the pool: memory grows with the samples taken at a time.

    What `take` returns is valid until it is called again.
    """

    data: FederatedData
    draw: Draw  # (3, num_ue, largest tau, num)
    local_steps: IntArray

    def __len__(self) -> int:
        return self.draw.sample.shape[1]

    @property
    def width(self) -> int:
        return self.draw.sample.shape[-1]

    def take(self, rows: IntArray) -> Batch:
        steps = int(self.local_steps[rows].max(initial=0))
        mask = self.draw.mask[:, rows, :steps]
        most = int(mask.sum(axis=-1).max(initial=0))  # no longer than the longest of these rows
        return self.data.batch(
            Draw(self.draw.sample[:, rows, :steps, :most], mask[..., :most]), "batch"
        )

    def narrowed(self) -> tuple["DrawnBatches", Columns | None]:
        return replace(self, data=self.data.narrow), self.data.columns


def federate(
    dataset: Dataset,
    partition: Partition,
    dtype: torch.dtype = torch.float32,
    standardise: bool = True,
) -> FederatedData:
    """Pool of a data set under a partition; bytes and tables are standardised by statistics of the
    training samples.
    """
    sums = (
        pixel_sums(dataset, partition.train)
        if standardise and dataset.x.dtype == np.uint8
        else None
    )
    pool = pool_of(dataset, partition, sums, dtype)
    if not standardise or not is_table(dataset):
        return pool
    mean, std = column_statistics(dataset, partition.train)
    scale = 1.0 / np.where(std > SAME * np.abs(mean), std, np.inf)
    # A column that never changes may be a user's own bias, so it stays; but a year of 2024 in every
    # sample would drown the others, so it is at most 1.
    same = scale == 0.0
    shift = np.where(same, 0.0, -mean * scale)
    scale = np.where(same, 1.0 / np.maximum(np.abs(mean), 1.0), scale)
    return replace(
        pool, shift=torch.from_numpy(shift).to(dtype), scale=torch.from_numpy(scale).to(dtype)
    )


def is_table(dataset: Dataset) -> bool:
    """Whether a sample is a row of measurements, each in a unit of its own."""
    return dataset.x.dtype.kind == "f" and len(dataset.sample_shape) == 1


def column_statistics(dataset: Dataset, index: IntArray) -> tuple[Array, Array]:
    """Mean and deviation of each column over these samples."""
    table = dataset.x[index].astype(np.float64)
    return table.mean(axis=0), table.std(axis=0)


def pool_of(
    dataset: Dataset,
    partition: Partition,
    sums: "PixelSums | None",
    dtype: torch.dtype = torch.float32,
) -> FederatedData:
    """Pool of a data set whose bytes are standardised by these statistics or, without any, scaled
    to 0 to 1.

    Mean 0 and deviation 1 for each pixel, 0.001 added to the deviation. A pixel that never changes
    in training carries nothing and is set to 0; dividing by 0.001 would blow a stray test pixel up
    1,000 times. Samples that are not bytes are taken as they are; `federate` standardises those of
    a table.
    """
    x = torch.from_numpy(dataset.x)
    y = torch.from_numpy(dataset.y)
    if dataset.x.dtype != np.uint8:
        return FederatedData(
            dataset.name, x.to(dtype), y, dataset.num_classes, partition, dtype=dtype
        )
    if sums is None:
        mean = np.zeros(dataset.sample_shape)
        scale = np.full(dataset.sample_shape, 1.0 / 255.0)
    else:
        mean, std = sums.statistics()
        scale = np.where(std > 0.0, 1.0 / (std + STD_OFFSET), 0.0)
    return FederatedData(
        name=dataset.name,
        x=x,
        y=y,
        num_classes=dataset.num_classes,
        partition=partition,
        shift=torch.from_numpy(-mean * scale).to(dtype).reshape(-1),
        scale=torch.from_numpy(scale).to(dtype).reshape(-1),
        dtype=dtype,
    )


@dataclass(frozen=True)
class PixelSums:
    """Sums over samples of each pixel and of its square: whole numbers, so that parts add up to the
    same bits.
    """

    num: int
    total: IntArray
    squares: IntArray

    def statistics(self) -> tuple[Array, Array]:
        """Mean and deviation of each pixel."""
        variance = (
            self.squares * self.num - self.total**2
        ) / self.num**2  # integers up to here: no cancellation
        return self.total / self.num, np.sqrt(variance)


def pixel_sums(dataset: Dataset, index: IntArray) -> PixelSums:
    """The sums over these samples, in pieces to save memory."""
    total = np.zeros(dataset.sample_shape, dtype=np.int64)
    squares = np.zeros(dataset.sample_shape, dtype=np.int64)
    for piece in np.array_split(index, max(1, len(index) // 4096)):
        block = dataset.x[piece].astype(np.int64)
        total += block.sum(axis=0)
        squares += (block**2).sum(axis=0)
    return PixelSums(len(index), total, squares)
