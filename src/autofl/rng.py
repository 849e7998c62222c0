"""Named random streams: one seed, and every draw says its purpose and index.

A new draw never shifts an old one, round 40 can be replayed alone, and a UE can draw its own
batches without knowing of the other UEs.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

from autofl.units import Array, IntArray


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """Generator of one purpose and index, independent of all the others."""
    key = (
        zlib.crc32(purpose.encode()),
        *index,
    )  # a list as seed would make [7, 5] and [7, 5, 0] equal
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def ue_uniforms(
    seed: int | IntArray, purpose: str, index: tuple[int, ...], ue: IntArray, num: int
) -> Array:
    """Uniform numbers in [0, 1) whose row for a UE depends on that UE (and its seed) alone, shape
    (len(ue), num).

    `stream(seed, purpose, *index, ue)` would say the same, at some 20 microseconds per UE; this
    serves all UEs of a round in one call. Each number is a SplitMix64 hash (Steele, Lea and Flood
    2014) of (key of seed, purpose and index; UE; position), the key coming from NumPy's
    SeedSequence.
    """
    spawn_key = (zlib.crc32(purpose.encode()), *index)
    seeds, which = np.unique(seed, return_inverse=True)
    keys = [
        np.random.SeedSequence(int(seed), spawn_key=spawn_key).generate_state(2, np.uint64)
        for seed in seeds
    ]
    key = np.stack(keys)[
        which.reshape(-1)
    ]  # one row, or one per UE where each has a seed of its own
    row = _mix(_mix(ue.astype(np.uint64) + key[:, 0]) ^ key[:, 1])
    position = np.arange(num, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = _mix(row[:, None] + position)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53  # 53 bits, as NumPy's own random()


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: a bijection of 64-bit words without visible structure."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
