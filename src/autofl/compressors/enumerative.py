"""Bit strings near their entropy: of each block how many ones it has, and which of all such blocks
it is (Cover 1973).

A block of n bits with k ones takes ceil(log2 C(n, k)) bits, its rank in the combinatorial number
system, and k is sent as a Rice code with one parameter for the whole string. The size is known
without coding.
"""

import bisect
import itertools
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.units import BoolArray, IntArray

BLOCK = 128
PARAMETER_BITS = 3
"""Bits of a Rice parameter, 0 to 7."""
_PARAMETERS = np.arange(2**PARAMETER_BITS)


class Tables(NamedTuple):
    """Binomials: `column[k][n]` = C(n, k), and `rank_bits[n, k]` = ceil(log2 C(n, k)), 0 for k > n."""

    column: list[list[int]]
    rank_bits: IntArray


@cache
def tables() -> Tables:
    rows = [[1]]
    for _ in range(BLOCK):  # Pascal's triangle
        rows.append([1, *(a + b for a, b in itertools.pairwise(rows[-1])), 1])
    column = [[row[k] if k < len(row) else 0 for row in rows] for k in range(BLOCK + 1)]
    rank_bits = np.zeros((BLOCK + 1, BLOCK + 1), dtype=np.int64)
    for n, row in enumerate(rows):
        rank_bits[n, : n + 1] = [(value - 1).bit_length() for value in row]
    return Tables(column, rank_bits)


def ones_of(text: BoolArray) -> IntArray:
    """How many ones each block has."""
    num = len(text) // BLOCK
    lanes = text[: num * BLOCK].view(np.uint64).reshape(num, BLOCK // 8)  # eight flags a word
    ones = (
        lanes.sum(axis=1).view(np.uint8).reshape(num, 8).sum(axis=1, dtype=np.int64)
    )  # no lane exceeds 16
    return np.append(ones, np.count_nonzero(text[num * BLOCK :])) if len(text) % BLOCK else ones


def coded_size(text: BoolArray) -> int:
    """Bits of the code of this string; nothing for an empty one."""
    return _size(ones_of(text), len(text))[0]


def _size(ones: IntArray, length: int) -> tuple[int, int]:
    """Bits, and the Rice parameter that makes them fewest."""
    if length == 0:
        return 0, 0
    rank_bits = tables().rank_bits
    full = length // BLOCK
    ranks = int(rank_bits[BLOCK, ones[:full]].sum())
    if full < len(ones):
        ranks += int(rank_bits[length % BLOCK, ones[-1]])
    counts = (ones[:, None] >> _PARAMETERS).sum(axis=0) + len(ones) * (1 + _PARAMETERS)
    parameter = int(counts.argmin())
    return PARAMETER_BITS + int(counts[parameter]) + ranks, parameter


def coded(text: BoolArray) -> str:
    """The code of a string, as characters 0 and 1."""
    if len(text) == 0:
        return ""
    column, rank_bits = tables()
    ones = ones_of(text)
    _, parameter = _size(ones, len(text))
    parts = [f"{parameter:0{PARAMETER_BITS}b}", *(rice(int(k), parameter) for k in ones)]
    for begin, k in zip(range(0, len(text), BLOCK), ones.tolist(), strict=True):
        block = text[begin : begin + BLOCK]
        wide = int(rank_bits[len(block), k])
        if wide:
            rank = sum(
                column[i][place] for i, place in enumerate(np.flatnonzero(block).tolist(), start=1)
            )
            parts.append(f"{rank:0{wide}b}")
    return "".join(parts)


def rice(value: int, parameter: int) -> str:
    low = f"{value & ((1 << parameter) - 1):0{parameter}b}" if parameter else ""
    return "1" * (value >> parameter) + "0" + low


class Reader:
    """Reads a code from its beginning; what cannot be one raises an `AutoFLError`."""

    def __init__(self, payload: bytes) -> None:
        self.digits: NDArray[np.uint8] = np.unpackbits(np.frombuffer(payload, np.uint8))
        self._text = (self.digits + ord("0")).tobytes().decode("ascii")
        self.place = 0

    def number(self, wide: int) -> int:
        """The next bits as a number."""
        begin = self._skip(wide)
        return int(self._text[begin : self.place], 2) if wide else 0

    def flags(self, num: int) -> NDArray[np.uint8]:
        """The next bits one by one."""
        begin = self._skip(num)
        return self.digits[begin : self.place]

    def run(self, digit: str, most: int) -> int:
        """How often this digit comes before the other one, which is read too."""
        end = self._text.find("0" if digit == "1" else "1", self.place, self.place + most + 1)
        if end < 0:
            raise AutoFLError("packed update: a number out of range, or the end too early")
        num = end - self.place
        self.place = end + 1
        return num

    def _skip(self, num: int) -> int:
        begin = self.place
        self.place = self.place + num
        if self.place > len(self._text):
            raise AutoFLError("packed update: it ends too early")
        return begin

    def string(self, length: int) -> BoolArray:
        """A string of `coded`."""
        text = np.zeros(length, dtype=np.bool_)
        if length == 0:
            return text
        column, rank_bits = tables()
        parameter = self.number(PARAMETER_BITS)
        sizes = [min(BLOCK, length - begin) for begin in range(0, length, BLOCK)]
        ones = []
        for n in sizes:
            k = (self.run("1", n >> parameter) << parameter) + self.number(parameter)
            if k > n:
                raise AutoFLError(f"packed update: {k} ones in a block of {n}")
            ones.append(k)
        for begin, n, k in zip(range(0, length, BLOCK), sizes, ones, strict=True):
            rank = self.number(int(rank_bits[n, k]))
            if rank >= column[k][n]:
                raise AutoFLError("packed update: the rank of a block out of range")
            place = n
            for i in range(k, 0, -1):
                place = bisect.bisect_right(column[i], rank, 0, place) - 1
                rank -= column[i][place]
                text[begin + place] = True
        return text
