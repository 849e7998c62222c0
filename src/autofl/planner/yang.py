"""The rival of Yang et al.: band, power and frequency of least delay for given work."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.network import Cell, Plan, Status, make_plan
from autofl.planner.base import MIN_SAMPLES, STEP_SAMPLES, Memory, Memoryless
from autofl.planner.power import energy_limited_snr
from autofl.ranges import Checked
from autofl.units import Array, BoolArray

STEPS = 64
"""Halvings of a bisection: an interval of floats has no room for more."""
DEADLINES = 32
"""Deadlines tried in one call, which narrows the interval 33-fold; fewer when there are many UEs.
"""
MOST_VALUES = 20_000
"""Deadlines times UEs in one call: beyond this, one call with many costs as much as several calls
with few.
"""

BLOCK = 8_192
"""Values worked on at once, so that they stay in the processor's cache."""


@dataclass(frozen=True)
class YangPlanner(Checked, Memoryless):
    """Least round time over band, power and CPU frequency, after Yang et al., "Delay minimization
    for federated learning over wireless communication networks" (ICML workshop 2020, arXiv
    2007.03462) and "Energy efficient federated learning over wireless communication networks" (IEEE
    TWC 2021, arXiv 1911.02417).

    Their method: all users end together at T, so T is feasible if the least bands with which each
    makes it sum to at most the band there is, and bisection gives the least T. Samples, local steps
    and bits are given: `num_samples`, and what the cell says. The band to share is the sum of the
    selected UEs' own.

    Note:
        Their delay problem has no energy limit, so f = f_max, p = p_max, and the least band is a
        Lambert W of T. Here each UE has E_max, so the least band is a search over one number
        (`least_band`); where E_max does not bind it gives theirs. The cell's frequency is f_max, as
        in theirs. Their users are all heard. Here a UE that cannot be
        decoded or pay for it takes no part: with `reach = "own"` that is judged in its own band,
        with "any" also in the narrower bands that it might get. A wider band does not help a weak
        UE once its SNR is down at phi, so it may decide T while band is left over; theirs is always
        used up. Their outer search over the local accuracy eta is
        not here: local work is given.
    """

    num_samples: Annotated[int, STEP_SAMPLES, "d"] = 40
    reach: Annotated[
        Literal["own", "any"], "who takes part: decodable in its own band, or in a narrower one"
    ] = "own"

    def __call__(self, cell: Cell, channel_gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        if not cell.link.is_shannon or cell.circuit_power > 0.0 or cell.pa_efficiency < 1.0:
            raise AutoFLError(
                "planner yang: its formulas are those of link shannon without amplifier and circuits; use joint"
            )
        samples = np.minimum(float(self.num_samples), np.floor(cell.data_size))
        feasible = (samples >= MIN_SAMPLES) & self._can_be_heard(cell, channel_gain)
        there = np.flatnonzero(feasible)
        there = there[
            np.argsort(cell.ue[there], kind="stable")
        ]  # sums must not depend on the order of UEs
        tx_power = np.zeros(cell.num_ue)
        bandwidth = cell.bandwidth.copy()
        frequency = cell.cpu_frequency.copy()
        if len(there):
            ues = cell.take(there)
            share = shared_band(
                ues, channel_gain[there], samples[there], float(np.sort(cell.bandwidth).sum())
            )
            tx_power[there], bandwidth[there], frequency[there] = (
                share.tx_power,
                share.bandwidth,
                share.cpu_frequency,
            )
        plan = make_plan(
            cell,
            feasible=feasible,
            num_samples=samples,
            tx_power=np.minimum(tx_power, cell.max_power),
            cpu_frequency=frequency,
            bandwidth=bandwidth,
            samples_limit=np.where(samples < self.num_samples, Status.DATA, Status.ACCURACY).astype(
                np.int8
            ),
            power_limit=np.where(
                tx_power >= cell.max_power * (1.0 - 1e-9), Status.POWER, Status.ENERGY
            ).astype(np.int8),
        )
        return plan, memory

    def _can_be_heard(self, cell: Cell, gain: Array) -> BoolArray:
        """Whether some deadline suits this UE: E_max exceeds phi Z / (a log2(1 + phi)), the energy
        of an upload at phi.

        A narrower band needs less power to reach phi but takes longer, so this energy does not
        depend on the band.
        """
        with np.errstate(divide="ignore"):
            least_energy = cell.noise_psd / gain * cell.snr_threshold * cell.update_bits
            power_in_own_band = cell.snr_threshold * cell.noise_power / gain
        least_energy = least_energy * np.log(2.0) / np.log1p(cell.snr_threshold)
        enough = least_energy < cell.max_energy * (
            1.0 - 1e-9
        )  # at the limit itself the frequency would be 0
        return enough & ((self.reach == "any") | (power_in_own_band <= cell.max_power))


@dataclass(frozen=True)
class Share:
    """What each UE gets to make a deadline, arrays of shape (..., num_ue)."""

    bandwidth: Array  # least B_i [Hz]; infinite where no band is wide enough
    tx_power: Array  # p_i [W]
    cpu_frequency: Array  # f_i [cycle/s]


def shared_band(cell: Cell, gain: Array, num_samples: Array, band: float) -> Share:
    """The shares of the least deadline whose bands sum to at most `band` [Hz].

    The deadline is bracketed by factors of 2, then narrowed with several trials at a time, keeping
    what fits.
    """

    def fits(deadlines: NDArray[np.float64]) -> BoolArray:
        at_once = max(1, BLOCK // cell.num_ue)
        rows = [
            deadlines[begin : begin + at_once, None] for begin in range(0, len(deadlines), at_once)
        ]
        bands = [least_band(cell, gain, num_samples, row).bandwidth.sum(axis=-1) for row in rows]
        return np.asarray(np.concatenate(bands) <= band)

    shortest = float(
        (cell.local_steps * cell.cycles_per_sample * num_samples / cell.cpu_frequency).max()
    )
    ladder = shortest * 2.0 ** np.arange(0, DEADLINES, dtype=np.float64)
    while not (good := fits(ladder)).any():
        ladder = ladder * 2.0**DEADLINES
    first = int(np.argmax(good))
    high = float(ladder[first])
    low = float(ladder[first - 1]) if first else shortest
    while (high - low) > 1e-14 * high:
        trials = np.linspace(low, high, max(1, min(DEADLINES, MOST_VALUES // cell.num_ue)) + 2)[
            1:-1
        ]
        first = int(np.argmax(np.append(fits(trials), True)))  # the first that fits; `high` does
        low = low if first == 0 else float(trials[first - 1])
        if first < len(trials):
            high = float(trials[first])
        if not low < high:
            break
    return least_band(cell, gain, num_samples, np.array(high))


def least_band(cell: Cell, gain: Array, num_samples: Array, deadline: Array) -> Share:
    """The least band with which each UE makes a deadline T, and the power and frequency it then
    has.

    With s = ln(1 + SNR), a = g / N0, W = tau C d cycles and kappa = varsigma / 2, an upload at s
    takes the energy

        q(s) = (Z ln 2 / a) (e^s - 1) / s

    whatever its band. The rest of E_max is the CPU's, so computing takes max(W / f_max, sqrt(kappa
    W^3 / (E - q))), the upload gets t(s) = T minus that, the band is Z ln 2 / (s t), the power q /
    t. q grows and t falls with s. q is convex, so t is concave and so is ln s + ln t: the least
    band has the largest s >= ln(1 + phi) with q <= P_max t at which s t still grows. Both tests
    turn once from true to false: one bisection.

    Args:
        cell: the UEs that can make some deadline.
        gain, num_samples: g_i and d_i, shape (num_ue,).
        deadline: T [s], shape (..., 1) or ().
    """
    bits = cell.update_bits * np.log(2.0)  # Z ln 2
    a = gain / cell.noise_psd
    work = cell.local_steps * cell.cycles_per_sample * num_samples
    cpu_energy = 0.5 * cell.capacitance * work**3  # kappa W^3 [J s^2]
    shortest = work / cell.cpu_frequency

    def energy_and_time(s: Array, growth: Array) -> tuple[Array, Array]:
        """Of the upload, q(s), and of computing with what is left; growth is e^s - 1."""
        energy = bits / a * growth / s
        rest = np.maximum(cell.max_energy - energy, 1e-300)
        return energy, np.maximum(shortest, np.sqrt(cpu_energy / rest))

    def goes_on(s: Array) -> BoolArray:
        """Whether the least band lies at this s or beyond: power suffices, and s t(s) grows."""
        growth = np.expm1(s)
        energy, computing = energy_and_time(s, growth)
        time = deadline - computing
        rest = cell.max_energy - energy
        slope = bits / a * (np.exp(s) * s - growth) / s**2  # q'(s)
        falls = np.where(
            computing > shortest, 0.5 * computing * slope / np.maximum(rest, 1e-300), 0.0
        )  # -t'(s)
        return np.asarray(
            (rest > 0.0) & (time > 0.0) & (energy <= cell.max_power * time) & (s * falls <= time)
        )

    lowest = np.log1p(cell.snr_threshold)
    highest = np.log1p(energy_limited_snr(a * cell.max_energy / bits))  # q = E_max
    shape = np.broadcast_shapes(deadline.shape, highest.shape)
    low = np.full(shape, lowest)
    high = np.broadcast_to(np.maximum(highest, lowest), shape)
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        on = goes_on(middle)
        low = np.where(on, middle, low)
        high = np.where(on, high, middle)
    energy, computing = energy_and_time(low, np.expm1(low))
    time = deadline - computing
    can = (time > 0.0) & (energy <= cell.max_power * time)
    time = np.where(can, time, np.inf)
    return Share(
        bandwidth=np.where(can, bits / (low * time), np.inf),
        tx_power=energy / time,
        cpu_frequency=np.broadcast_to(work / computing, shape),
    )
