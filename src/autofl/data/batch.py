"""Batches: padded tensors with masks, one row a UE, and how their samples are drawn."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from autofl.data.partition import Partition
from autofl.rng import ue_uniforms
from autofl.units import BoolArray, IntArray


class Batch(NamedTuple):
    """Samples x (..., num, *sample_shape), labels y (..., num), mask (..., num): 1 for a sample, 0 for padding."""

    x: Tensor
    y: Tensor
    mask: Tensor


class MetaBatch(NamedTuple):
    """The three independent batches of one meta-gradient, Eq. (7): D_in, D_o and D_h."""

    inner: Batch
    outer: Batch
    hess: Batch

    @classmethod
    def of(cls, batch: Batch) -> "MetaBatch":
        """The three parts of a batch whose leading axis is the role."""
        return cls(*(Batch(batch.x[role], batch.y[role], batch.mask[role]) for role in range(3)))

    def joined(self) -> Batch:
        """All d samples as one batch, for algorithms that take a plain gradient."""
        parts = (self.inner, self.outer, self.hess)
        axis = self.inner.y.ndim - 1
        return Batch(
            torch.cat([part.x for part in parts], dim=axis),
            torch.cat([part.y for part in parts], dim=axis),
            torch.cat([part.mask for part in parts], dim=axis),
        )


class Draw(NamedTuple):
    """Which samples a batch takes: indices into the data set and the mask, both (..., num)."""

    sample: IntArray
    mask: BoolArray


def third_sizes(num_samples: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """D_in, D_o, D_h with sum d: equal up to rounding, the outer batch first to get one more, the Hessian's last."""
    outer = -(-num_samples // 3)
    inner = -(-(num_samples - outer) // 2)
    return inner, outer, num_samples - outer - inner


def draw_positions(
    size: IntArray,
    num_samples: IntArray,
    ue: IntArray,
    local_steps: int,
    seed: int | IntArray,
    purpose: str,
    round_index: int,
) -> IntArray:
    """Distinct positions below size[i], num_samples[i] of them in random order, for each UE and local step.

    Robert Floyd's algorithm picks the set, a sort of random keys its order; both on all UEs at once. Each UE's
    draw depends on (seed, purpose, round, UE) and on nothing else, so a device can repeat it alone.

    Returns:
        Shape (num_ue, tau, max num_samples); what lies behind num_samples[i] is 0.
    """
    longest = int(num_samples.max(initial=0))
    shape = (len(ue), local_steps, longest)
    # A call for each step and use: the numbers of a UE then do not depend on how many samples others draw.
    pick, key = (
        np.stack([ue_uniforms(seed, purpose, (round_index, t, use), ue, longest) for t in range(local_steps)], axis=1)
        for use in range(2)
    )
    chosen = np.full(shape, -1, dtype=np.int64)
    for j in range(longest):
        top = (size - num_samples + j)[:, None]
        candidate = (pick[:, :, j] * (top + 1)).astype(np.int64)
        taken = (chosen[:, :, :j] == candidate[:, :, None]).any(axis=-1)
        chosen[:, :, j] = np.where(taken, top, candidate)
    unused = np.arange(longest) >= num_samples[:, None, None]
    order = np.argsort(np.where(unused, 2.0, key), axis=-1, kind="stable")
    return np.where(unused, 0, np.take_along_axis(chosen, order, axis=-1))


def draw_meta(
    partition: Partition, ue: IntArray, num_samples: IntArray, local_steps: int, seed: int, round_index: int
) -> Draw:
    """The samples of D_in, D_o and D_h for each UE and local step: disjoint, without replacement.

    Args:
        partition: who owns what.
        ue: the UEs that train, shape (num_ue,).
        num_samples: d_k^i of one local step, shape (num_ue,), at most the UE's own number.
    Returns:
        Arrays of shape (3, num_ue, tau, num): inner, outer and Hessian batch.
    """
    positions = draw_positions(partition.train_size[ue], num_samples, ue, local_steps, seed, "batch", round_index)
    return in_thirds(partition.train[partition.train_start[ue][:, None, None] + positions], num_samples)


def in_thirds(samples: IntArray, num_samples: IntArray) -> Draw:
    """Drawn samples (num_ue, tau, longest) as the three batches, (3, num_ue, tau, num)."""
    size = np.stack(third_sizes(num_samples))  # (3, num_ue)
    begin = np.cumsum(size, axis=0) - size
    slot = np.arange(int(size.max(initial=0)))
    column = np.minimum(begin[..., None] + slot, max(samples.shape[-1] - 1, 0))[:, :, None, :]
    column = np.broadcast_to(column, (3, *samples.shape[:2], len(slot)))
    mask = np.broadcast_to((slot < size[..., None])[:, :, None, :], column.shape)
    return Draw(np.take_along_axis(samples[None], column, axis=-1), mask.copy())


class Batches(Protocol):
    """The batches of a round, one row a UE, to be had in pieces."""

    def __len__(self) -> int: ...

    @property
    def width(self) -> int:
        """The longest of the three batches of any UE."""
        ...

    def take(self, rows: IntArray) -> Batch:
        """The batches of these rows, leading axes (3, len(rows), tau): inner, outer and Hessian batch."""
        ...


@dataclass(frozen=True)
class InMemory:
    """Batches that are there already."""

    batch: Batch  # leading axes (3, num_ue, tau)

    def __len__(self) -> int:
        return self.batch.y.shape[1]

    @property
    def width(self) -> int:
        return self.batch.y.shape[-1]

    def take(self, rows: IntArray) -> Batch:
        where = torch.from_numpy(rows)
        return Batch(self.batch.x[:, where], self.batch.y[:, where], self.batch.mask[:, where])
