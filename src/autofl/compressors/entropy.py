"""Unbiased rounding to multiples of one step, entropy-coded; the step is the one that fits the
planned bits.
"""

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from autofl.compressors import enumerative
from autofl.compressors.base import Randomness, Sent, check_length, fitting_bytes, whole_bytes
from autofl.errors import AutoFLError
from autofl.ranges import Checked, Range

if TYPE_CHECKING:
    from torch import Tensor

HEADER = struct.Struct("<fB")
"""The step, and how many low bits of each weight are sent as they are."""
MOST_LOW_BITS = 20
LEVELS = 12
"""Sizes 1, 2, ... are coded as bit strings; what is beyond follows as an Elias gamma code."""
LEAST_BITS = 128
"""Least bits of an update of one block, so that a handful of its weights can be sent."""
FILLED = 0.995
"""Share of the budget at which the search ends."""
GAMMA_BITS = 25
"""Most digits after the first of a gamma code."""
GRID = 256
"""Steps in an octave: each 0.27 % larger than the last."""
MOST_STEPS = 12
"""Most steps of the search."""
MOST_BITS = 12.0
"""Most bits per weight: beyond that, single precision is no finer."""
LARGEST = 2.0**24
"""Largest q_j: up to here every whole number is a single-precision one."""
TYPICAL = (
    np.log([0.016, 0.03, 0.065, 0.147, 0.32, 0.67, 1.29, 2.25, 3.5, 4.9, 6.4, 7.8, 9.4, 10.8]),
    np.arange(7.0, -7.0, -1.0) / np.log(2.0),
)
"""Where the search begins: log of the rate [bit per weight], and log2 of the step over the mean
size of a weight.
"""
MEASURED = (
    *((0.05, 50.0), (0.1, 18.0), (0.15, 10.2), (0.2, 6.8)),
    *((0.3, 3.6), (0.5, 1.5), (0.8, 0.54), (1.6, 0.08)),
)
"""Bits per weight and variance on updates of the MLP on MNIST (benchmarks/compression.py)."""
Row = NDArray[np.float32]


@dataclass(frozen=True)
class Entropy(Checked):
    """Every weight becomes a whole multiple of one step s for the whole update.

        q_j = floor(x_j / s + u_j),    received as s q_j,    u_j uniform in [0, 1)

    E[s q_j] = x_j for every s. The step is the smallest whose code fits the bits that a planner
    decides, so Z is used to within half a percent. It is searched for with the same u_j, which
    leaves a bias of the order of one part in the number of weights that are not rounded to zero.

    Code: q_j != 0 as a bit string, |q_j| >= 2 of those as the next, and so on (`enumerative`), each
    near its entropy block by block; what exceeds 12 as a gamma code; signs. Of large q_j the lowest
    bits are sent as they are.
    """

    bits: Annotated[float, Range(ge=0.02, le=MOST_BITS), "bits per weight"] = 1.0

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float:
        least = whole_bytes(LEAST_BITS + 2 * -(-num_weights // enumerative.BLOCK))
        if bits_per_weight is None:
            return max(whole_bytes(self.bits * num_weights), least)
        return max(fitting_bytes(min(bits_per_weight, MOST_BITS) * num_weights), least)

    def rates(self) -> list[tuple[float, float]]:
        """Bits per weight and variance E|Q(x) - x|^2 / |x|^2 for a planner to choose from."""
        return list(MEASURED)

    def init(self, num_weights: int) -> "dict[str, Tensor]":
        return {}

    def __call__(
        self,
        change: "Tensor",
        bits_per_weight: float,
        randomness: Randomness,
        own: "dict[str, Tensor]",
    ) -> "tuple[Sent, dict[str, Tensor]]":
        import torch

        values = change.detach().cpu().numpy().astype(np.float32, copy=False)
        uniform = randomness().random(len(values), dtype=np.float32)
        step, whole, size = fitted(values, uniform, self.update_bits(len(values), bits_per_weight))
        received = torch.from_numpy(times(step, whole)).to(change)
        return Sent(received, whole_bytes(size), lambda: packed(step, whole)), own

    def unpack(self, payload: bytes, num_weights: int) -> "Tensor":
        import torch

        if 8 * len(payload) > self.update_bits(num_weights, MOST_BITS):
            raise AutoFLError(
                f"packed update: {len(payload)} bytes are more than {num_weights} weights can take"
            )
        return torch.from_numpy(times(*unpacked(payload, num_weights)))


def times(step: np.float32, whole: Row) -> Row:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.multiply(step, whole, dtype=np.float32)


def fitted(
    values: Row,
    uniform: Row,
    budget: float,
    most_steps: int = MOST_STEPS,
    halve_from: int = MOST_STEPS,
) -> tuple[np.float32, Row, int]:
    """The step whose code fills the budget [bit], the whole numbers under it, and the size of their
    code.

    Steps are 2^(j / GRID): two machines whose sums differ in the last digit take the same one. The
    logarithm of the
    size falls almost linearly with j: secant steps, kept between a j known to be too small and one
    known to be large enough; from the step `halve_from` on, half-way between the two. An update
    that is not finite, or needs a step that is not, has step infinity and is received as NaN.
    """
    nothing = np.zeros_like(values)
    mean = float(np.abs(values).mean(dtype=np.float64))
    if mean == 0.0 or not math.isfinite(mean):
        return np.float32(math.inf if mean != 0.0 else 1.0), nothing, code_size(nothing)
    aim = math.log((1.0 + FILLED) / 2.0 * budget)
    rate = math.log(budget / len(values))
    least = max(math.ceil(GRID * math.log2(float(np.abs(values).max()) / LARGEST)), -126 * GRID)
    j = max(round(GRID * (math.log2(mean) + float(np.interp(rate, *TYPICAL)))), least)
    slope = (-0.9 if rate < 0.0 else -0.6) * math.log(2.0) / GRID
    low: tuple[int, float] | None = None  # too small, with the logarithm of the size
    high: tuple[int, float] | None = None  # large enough
    best = np.float32(math.inf), nothing, code_size(nothing)
    trial = 0
    while j < 128 * GRID:
        trial += 1
        step = np.float32(2.0 ** (j / GRID))
        whole = values / step
        whole += uniform
        np.floor(whole, out=whole)
        size = code_size(whole)
        if size <= budget:
            high = (j, math.log(size))
            best = (step, whole, size)
            if size >= FILLED * budget or j == least or trial >= most_steps:
                break
        else:
            low = j, math.log(size)
        if high is None:
            j += max(round((aim - math.log(size)) / slope), trial)
        elif low is None:
            j = max(j + min(round((aim - math.log(size)) / slope), -1), least)
        elif high[0] - low[0] == 1 or trial >= most_steps:
            break
        elif trial >= halve_from:
            j = (low[0] + high[0]) // 2
        else:
            between = low[0] + round(
                (aim - low[1]) * (high[0] - low[0]) / min(high[1] - low[1], -1e-9)
            )
            inside = (high[0] - low[0]) // 10 + 1
            j = min(max(between, low[0] + inside), high[0] - inside)
    return best


def low_bits_of(sizes: Row, length: int) -> int:
    """How many low bits are sent as they are: those that leave numbers of about 2 to 4 on average."""
    return min(
        max(int(float(sizes.sum(dtype=np.float64)) / length).bit_length() - 2, 0), MOST_LOW_BITS
    )


def code_size(whole: Row) -> int:
    """Bits of `packed`, before they are filled up to a byte."""
    there = whole != 0.0
    sizes = np.abs(whole[there])
    low = low_bits_of(sizes, len(whole))
    bits = 8 * HEADER.size + len(sizes) + low * len(whole)
    if low:
        there = np.abs(whole) >= 2.0**low
        sizes = np.floor(np.abs(whole[there]) * np.float32(2.0**-low))
    bits += enumerative.coded_size(there)
    for level in range(2, LEVELS + 1):
        there = sizes >= level
        bits += enumerative.coded_size(there)
        sizes = sizes[there]
    return bits + int((2 * _exponent(sizes - (LEVELS - 1)) + 1).sum())


def _exponent(value: Row) -> NDArray[np.int32]:
    """floor(log2 value) of whole numbers >= 1."""
    return np.frexp(value)[1] - 1


def packed(step: np.float32, whole: Row) -> bytes:
    sizes = np.abs(whole)
    low = low_bits_of(sizes, len(whole))
    digits = sizes.astype(">u4").view(np.uint8).reshape(-1, 4)
    parts = [_text(np.unpackbits(digits, axis=1)[:, 32 - low :])]
    sizes = np.floor(sizes * np.float32(2.0**-low))
    for level in range(1, LEVELS + 1):
        there = sizes >= level
        parts.append(enumerative.coded(there))
        sizes = sizes[there]
    rest = (sizes - (LEVELS - 1)).astype(np.int64).tolist()
    parts += [f"{one:b}".zfill(2 * one.bit_length() - 1) for one in rest]
    parts.append(_text(whole[whole != 0.0] < 0.0))
    text = np.frombuffer("".join(parts).encode("ascii"), np.uint8) - ord("0")
    return HEADER.pack(step, low) + np.packbits(text).tobytes()


def _text(flags: NDArray[Any]) -> str:
    return (flags.reshape(-1).astype(np.uint8) + np.uint8(ord("0"))).tobytes().decode("ascii")


def unpacked(payload: bytes, num_weights: int) -> tuple[np.float32, Row]:
    """Step and whole numbers of `packed`; an `AutoFLError` for what it does not make."""
    if len(payload) < HEADER.size:
        raise AutoFLError(f"packed update: {len(payload)} bytes; its header has {HEADER.size}")
    step, low = HEADER.unpack_from(payload)
    if low > MOST_LOW_BITS:
        raise AutoFLError(f"packed update: {low} low bits; at most {MOST_LOW_BITS}")
    reader = enumerative.Reader(payload[HEADER.size :])
    lowest = reader.flags(low * num_weights).reshape(num_weights, low) @ (1 << np.arange(low)[::-1])
    sizes = np.zeros(num_weights, dtype=np.int64)
    there = np.arange(num_weights)
    for _ in range(LEVELS):
        there = there[reader.string(len(there))]
        sizes[there] += 1
    for place in there.tolist():
        wide = reader.run("0", GAMMA_BITS)
        sizes[place] += (1 << wide) + reader.number(wide) - 1
    sizes = (sizes << low) + lowest
    if (sizes > LARGEST + 1).any():
        raise AutoFLError("packed update: a weight out of range")
    negative = reader.flags(int(np.count_nonzero(sizes))) == 1
    check_length(payload, HEADER.size + -(-reader.place // 8))
    sizes[np.flatnonzero(sizes)[negative]] *= -1
    return np.float32(step), sizes.astype(np.float32)
