"""Batches: padded tensors with masks, one row per UE, and how their samples are drawn."""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from autofl.data.partition import Partition
from autofl.errors import AutoFLError
from autofl.rng import ue_uniforms
from autofl.units import BoolArray, IntArray


class Batch(NamedTuple):
    """Samples x (..., num, *sample_shape), labels y (..., num), mask (..., num): 1 for a sample, 0
    for padding.
    """

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


Split = tuple[float, float, float]
"""Shares of d for the inner, the outer and the Hessian batch; they sum to 1."""
THIRDS: Split = (1 / 3, 1 / 3, 1 / 3)
_FIRST = np.array(
    [1, 0, 2]
)  # of equal claims to a sample the outer batch's comes first, the Hessian's last


def split_sizes(num_samples: IntArray, split: Split = THIRDS) -> IntArray:
    """D_in, D_o, D_h, shape (3, ...), with sum d: the shares of d, rounded.

    Each batch gets the whole part of its share; what is left goes, one sample each, to the largest
    fractions. From d = 3 on a batch that has none then takes one sample from the largest batch.
    """
    quota = np.multiply.outer(np.asarray(split), num_samples)
    size = np.floor(quota).astype(np.int64)
    place = np.argsort((size - quota)[_FIRST], axis=0, kind="stable")
    rank = np.argsort(place, axis=0, kind="stable")[_FIRST]  # _FIRST is its own inverse
    size = size + (rank < num_samples - size.sum(axis=0))
    lacking = (size == 0) & (num_samples >= 3)
    largest = np.arange(3).reshape(3, *[1] * num_samples.ndim) == size.argmax(axis=0)
    return size + lacking - largest * lacking.sum(axis=0)


def check_split(split: Split) -> None:
    """Refuse shares that are not three positive numbers of sum 1."""
    if (
        len(split) != 3
        or not all(share > 0.0 for share in split)
        or not abs(sum(split) - 1.0) <= 1e-9
    ):
        raise AutoFLError(
            f"split: {list(split)} are not three shares > 0 of sum 1, such as [0.1, 0.8, 0.1]"
        )


def draw_positions(
    size: IntArray,
    num_samples: IntArray,
    ue: IntArray,
    local_steps: int | IntArray,
    seed: int | IntArray,
    purpose: str,
    round_index: int,
) -> IntArray:
    """Distinct positions below size[i], num_samples[i] of them in random order, for each UE and
    local step.

    All UEs at once. Each UE's draw depends on (seed, purpose, round, UE), on its own size and
    number of samples, and on nothing else, so a device can repeat it alone.

    Returns:
        Shape (num_ue, largest tau, max num_samples); what lies beyond tau_i or num_samples[i] is 0.
    """
    seeds = np.broadcast_to(np.asarray(seed), ue.shape)
    steps = np.broadcast_to(np.asarray(local_steps), ue.shape)
    drawn = np.zeros(
        (len(ue), int(steps.max(initial=0)), int(num_samples.max(initial=0))), dtype=np.int64
    )
    few = 2 * num_samples <= size
    for t in range(drawn.shape[1]):
        for kind, draw in ((few, _first_distinct), (~few, _first_by_key)):
            rows = kind & (t < steps)
            if rows.any():
                purpose_of = (purpose, (round_index, t))
                positions = draw(size[rows], num_samples[rows], ue[rows], seeds[rows], *purpose_of)
                drawn[rows, t, : positions.shape[1]] = positions
    return drawn


def _first_distinct(
    size: IntArray,
    num: IntArray,
    ue: IntArray,
    seed: IntArray,
    purpose: str,
    index: tuple[int, ...],
) -> IntArray:
    """The first num[i] distinct numbers of a stream of random ones: cheap where few of many are
    wanted.
    """
    longest = int(num.max())
    length = (
        int(1.5 * longest) + 16
    )  # half of all need 1.39 numbers each; a stream too short is lengthened
    while True:
        stream_of = (ue_uniforms(seed, purpose, (*index, 0), ue, length) * size[:, None]).astype(
            np.int64
        )
        order = np.argsort(stream_of, axis=1, kind="stable")
        ordered = np.take_along_axis(stream_of, order, axis=1)
        again = np.zeros(stream_of.shape, dtype=np.bool_)
        np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
        if ((~again).sum(axis=1) >= num).all():
            break
        length *= 2
    place = np.argsort(again, axis=1, kind="stable")[
        :, :longest
    ]  # what is new first, in the order it came
    return np.where(
        np.arange(longest) < num[:, None], np.take_along_axis(stream_of, place, axis=1), 0
    )


def _first_by_key(
    size: IntArray,
    num: IntArray,
    ue: IntArray,
    seed: IntArray,
    purpose: str,
    index: tuple[int, ...],
) -> IntArray:
    """The num[i] positions with the smallest of size[i] random keys: cheap where most of all are
    wanted.
    """
    keys = ue_uniforms(seed, purpose, (*index, 1), ue, int(size.max()))
    keys[np.arange(keys.shape[1]) >= size[:, None]] = 2.0
    longest = int(num.max())
    return np.where(
        np.arange(longest) < num[:, None], np.argsort(keys, axis=1, kind="stable")[:, :longest], 0
    )


def draw_in_parts(
    size: IntArray,
    num_samples: IntArray,
    ue: IntArray,
    local_steps: int | IntArray,
    seed: int | IntArray,
    purpose: str,
    round_index: int,
    split: Split = THIRDS,
    independent: bool = False,
) -> IntArray:
    """`draw_positions`, or with `independent` the same in three draws: a sample may lie in several
    of the batches.

    Returns:
        Shape (num_ue, largest tau, max num_samples): the inner batch, then the outer, then the
        Hessian's.
    """
    if not independent:
        return draw_positions(size, num_samples, ue, local_steps, seed, purpose, round_index)
    sizes = split_sizes(num_samples, split)
    drawn = np.zeros(
        (len(ue), int(np.max(local_steps, initial=0)), int(num_samples.max(initial=0))),
        dtype=np.int64,
    )
    for role, (begin, num) in enumerate(zip(np.cumsum(sizes, axis=0) - sizes, sizes, strict=True)):
        own = draw_positions(
            size, num, ue, local_steps, seed, f"{purpose}, batch {role}", round_index
        )
        row, slot = np.nonzero(np.arange(own.shape[2]) < num[:, None])
        drawn[row, :, begin[row] + slot] = own[row, :, slot]
    return drawn


def draw_meta(
    partition: Partition,
    ue: IntArray,
    num_samples: IntArray,
    local_steps: int | IntArray,
    seed: int,
    round_index: int,
    split: Split = THIRDS,
    independent: bool = False,
) -> Draw:
    """The samples of D_in, D_o and D_h for each UE and local step, without replacement: disjoint,
    or independent.

    Args:
        partition: who owns what.
        ue: the UEs that train, shape (num_ue,).
        num_samples: d_k^i of one local step, shape (num_ue,), at most the UE's own number.
        split: the three batches' shares of it.
        independent: whether each batch is drawn from all samples, whatever the others hold.
    Returns:
        Arrays of shape (3, num_ue, tau, num): inner, outer and Hessian batch.
    """
    how = (ue, local_steps, seed, "batch", round_index, split, independent)
    positions = draw_in_parts(partition.train_size[ue], num_samples, *how)
    samples = partition.train[partition.train_start[ue][:, None, None] + positions]
    return in_three(samples, num_samples, np.broadcast_to(np.asarray(local_steps), ue.shape), split)


def in_three(
    samples: IntArray, num_samples: IntArray, local_steps: IntArray, split: Split = THIRDS
) -> Draw:
    """Drawn samples (num_ue, tau, longest) as the three batches, (3, num_ue, tau, num); steps past
    tau_i are empty.
    """
    size = split_sizes(num_samples, split)  # (3, num_ue)
    begin = np.cumsum(size, axis=0) - size
    slot = np.arange(int(size.max(initial=0)))
    column = np.minimum(begin[..., None] + slot, max(samples.shape[-1] - 1, 0))[:, :, None, :]
    column = np.broadcast_to(column, (3, *samples.shape[:2], len(slot)))
    has_step = (np.arange(samples.shape[1]) < local_steps[:, None])[None, :, :, None]
    mask = np.broadcast_to((slot < size[..., None])[:, :, None, :] & has_step, column.shape)
    return Draw(np.take_along_axis(samples[None], column, axis=-1), mask.copy())


class Columns(NamedTuple):
    """Which inputs are left where many are 0 in every sample: those that vary, and a few zeros to
    fill up.

    kept (num_kept,) are the inputs left, the last of them a zero; back (num_inputs,) is the place
    of each input among them, a zero left out being found at that last one.
    """

    kept: Tensor
    back: Tensor


class Batches(Protocol):
    """The batches of a round, one row per UE, available in pieces."""

    def __len__(self) -> int: ...

    @property
    def width(self) -> int:
        """The longest of the three batches of any UE."""
        ...

    @property
    def local_steps(self) -> IntArray:
        """tau of each row."""
        ...

    def take(self, rows: IntArray) -> Batch:
        """The batches of these rows, leading axes (3, len(rows), their largest tau): inner, outer,
        Hessian batch.
        """
        ...

    def narrowed(self) -> tuple["Batches", Columns | None]:
        """The same batches without inputs that are 0 in every sample, and which are left; None if
        all are.
        """
        ...
