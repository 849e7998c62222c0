"""SplitMix64 in plain Python integers, and the uniform numbers of one UE drawn from it one at a
time.
"""

import zlib
from collections.abc import Iterator
from itertools import islice

import numpy as np

MASK = 2**64 - 1


def splitmix64(state: int) -> Iterator[int]:
    """The generator of Steele, Lea and Flood (2014), Fig. 17, as 64-bit words."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def uniforms_of_one_ue(
    seed: int, purpose: str, index: tuple[int, ...], ue: int, num: int
) -> list[float]:
    """The first `num` uniform numbers of a UE: SplitMix64 from a state hashed from key and UE, its
    top 53 bits.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), *index))
    first_key, second_key = (int(word) for word in sequence.generate_state(2, np.uint64))
    inner = next(splitmix64((ue + first_key) & MASK))
    state = next(splitmix64(inner ^ second_key))
    return [(word >> 11) / 2**53 for word in islice(splitmix64(state), num)]
