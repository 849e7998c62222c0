"""The allocation for every rate law and with circuit power: what `allocation` does for Shannon's
law, by bisection.

The least band of a UE still falls as the deadline grows, though perhaps in jumps, so the least
deadline whose bands fit into the total can be bracketed as closely as floats allow (docs/radio.md).
"""

import math
from types import ModuleType

import numpy as np

from autofl.errors import AutoFLError
from autofl.planner import smooth, steps
from autofl.planner.band import FOREVER, SAFE, Task
from autofl.planner.fixed_band import Allocation, Plan, part, spread
from autofl.planner.smooth import Point, better
from autofl.units import Array, BoolArray

DEADLINES = 32
"""Deadlines tried in one call; fewer when there are many UEs."""
MOST_VALUES = 20_000
GRID = 65
"""Bands compared for each UE when saving energy; fewer when there are many UEs."""
REFINED = 5
FEW = 32
PIECES = 400
"""On a staircase, up to FEW UEs share the spare band in PIECES pieces."""


BLOCK = 8_192
"""Values worked on at once, so that they stay in the processor's cache."""


def _kind(task: Task) -> ModuleType:
    return steps if task.levels else smooth


def shortest(task: Task) -> Array:
    """Least deadline that a UE can make with any band [s]; inf where it can never take part.

    Full power in a band as wide as the lowest SNR allows: t = A/P, and the circuits take P_c t.
    """
    its = task.terms
    with np.errstate(all="ignore"):
        sending = _kind(task).least_upload_energy(task)
        t = sending / task.max_power
        s = np.maximum(
            np.sqrt(its.cube / (its.energy - sending - task.circuit_power * t)), its.quickest
        )
        able = (s <= its.slowest) & (s > 0.0) & (t > 0.0) & (s + t < FOREVER)
    return np.where(able, (s + t) * (1.0 + 4.0 * SAFE), np.inf)


def least_band(task: Task, deadline: Array | float) -> Array:
    """b_i(T) [Hz]; inf where no band is enough."""
    makes = np.asarray(deadline) >= shortest(task)
    band = np.full(makes.shape, np.inf)
    places = np.flatnonzero(makes)
    served = task.at(makes.shape, makes)
    deadlines = np.broadcast_to(deadline, makes.shape)[makes]
    for begin in range(0, len(places), BLOCK):
        some = slice(begin, begin + BLOCK)
        point = _kind(task).narrowest(served.at(places.shape, some), deadlines[some])
        band.flat[places[some]] = np.where(point.able, point.band, np.inf)
    return band


def _longest(task: Task) -> float:
    """A deadline [s] beyond which no UE needs less band, as its circuits use up the energy; inf
    without circuits.
    """
    if task.circuit_power == 0.0:
        return math.inf
    its = task.terms
    crawling = 1e4 * np.sqrt(its.cube / its.energy)  # computing takes 1e-8 of the energy
    return float((np.minimum(its.slowest, crawling) + its.energy / task.circuit_power).max())


def allocate(task: Task, total_band: float, tolerance: float = 1e-12) -> Allocation:
    """The allocation with the least T; `lower` is a deadline whose bands do not fit, `upper` one
    whose bands do.
    """
    least = shortest(task)
    able = np.isfinite(least)
    if not able.any():
        return spread(task, None, lower=math.inf, residual=math.nan, able=able)
    served = part(task, able)

    def fits(deadlines: Array) -> BoolArray:
        return np.asarray(least_band(served, deadlines[:, None]).sum(axis=-1) <= total_band)

    low = high = float(least[able].max())
    if not fits(np.array([low]))[0]:
        longest = _longest(served)
        if longest < math.inf and not fits(np.array([longest]))[0]:
            raise AutoFLError(
                f"allocation: {total_band:g} Hz are too few for these {int(able.sum())} UEs at any deadline:"
                " sending for longer, their circuits use up the energy"
            )
        ladder = low * 2.0 ** np.arange(1.0, 9.0)
        while not (good := fits(np.minimum(ladder, longest))).any():
            ladder = ladder * 256.0
        high = float(ladder[int(np.argmax(good))])
        low = max(low, high / 2.0)
        high = min(high, longest)
        trials_at_once = max(1, min(DEADLINES, MOST_VALUES // int(able.sum())))
        while high > low * (1.0 + tolerance):
            trials = low * (high / low) ** (np.arange(1, trials_at_once + 1) / (trials_at_once + 1))
            first = int(np.argmax(np.append(fits(trials), True)))
            before = low
            low = low if first == 0 else float(trials[first - 1])
            high = high if first == len(trials) else float(trials[first])
            if low == before and first == len(trials):
                break
    point = _kind(task).narrowest(served, np.asarray(high))
    plan = _plan(served, point)
    return spread(task, plan, lower=min(low, float(plan.time.max())), residual=math.nan, able=able)


def allocate_fixed_band(task: Task, own: Array | float) -> Allocation:
    """The least time of each UE in its own band [Hz]."""
    able = np.isfinite(shortest(task))
    band = np.broadcast_to(np.asarray(own, dtype=np.float64), able.shape)
    if not (band > 0.0).all() or not np.isfinite(band).all():
        raise AutoFLError("allocation: every band must be a finite number > 0")
    point = _kind(task).fastest(task, band)
    able = able & point.able
    plan = _plan(part(task, able), _some(point, able)) if able.any() else None
    return spread(task, plan, lower=math.inf, residual=math.nan, able=able)


def least_energy_fixed_band(task: Task, own: Array | float, deadline: float) -> Allocation:
    """The least energy of each UE in its own band within a deadline."""
    able = np.isfinite(shortest(task))
    point = _kind(task).thriftiest(
        task, np.broadcast_to(np.asarray(own, dtype=np.float64), able.shape), deadline
    )
    able = able & point.able
    plan = _plan(part(task, able), _some(point, able)) if able.any() else None
    return spread(task, plan, lower=math.nan, residual=0.0, able=able)


def least_energy(task: Task, total_band: float, deadline: float) -> Allocation:
    """The least total energy within a deadline: one price for band, and grids of bands refined
    around the best.

    For a curve this is the optimum. On a staircase a UE's energy is not convex in its band, so the
    price may leave band over, which is offered to one UE after another. `residual` is the relative
    gap to the dual bound.

    Note: at the time of `allocate` a UE may have one way to send and none a rounding error earlier,
        so the deadline is
        read as a trifle longer: no plan is later than deadline (1 + 4 SAFE).
    """
    deadline *= 1.0 + 4.0 * SAFE
    able = np.isfinite(shortest(task))
    if not able.any():
        return spread(task, None, lower=math.nan, residual=0.0, able=able)
    served = part(task, able)
    kind = _kind(task)
    least = least_band(served, deadline)
    if not float(least.sum()) <= total_band * (1.0 + 1e-9):
        raise AutoFLError(
            f"allocation: deadline = {deadline:g} s is too short; allocate() gives the shortest"
        )
    lowest_snr = task.levels[0][1] if task.levels else task.phi * (1.0 + SAFE)
    spare = max(total_band - float(least.sum()), 0.0)
    most = np.maximum(
        np.minimum(served.max_power * served.gain_to_noise / lowest_snr, least + spare), least
    )
    points = int(np.clip(MOST_VALUES // len(least), 9, GRID))
    low = np.log(least)
    high = np.log(most)
    bound = -math.inf
    grid = np.linspace(0.0, 1.0, points)[:, None]
    for step in range(REFINED):
        bands = np.exp(low + (high - low) * grid)
        bands[0] = np.exp(low) if step else least
        trial = kind.thriftiest(served, bands, deadline)
        energy = np.where(trial.able, trial.energy, np.inf)
        if step == 0:  # the least band is feasible, whatever rounding says
            energy[0] = np.where(trial.able[0], energy[0], served.max_energy)
        place, dual = _priced(energy, bands, total_band)
        bound = max(bound, dual) if step else dual
        column = np.arange(len(least))
        low, high = (
            np.log(bands[np.clip(place + shift, 0, points - 1), column]) for shift in (-1, 1)
        )
    best = bands[place, column]
    best = np.maximum(best * min(1.0, total_band / float(best.sum())), least)
    narrow = kind.narrowest(served, np.asarray(deadline))

    def sent_in(bands: Array) -> Point:
        """The thriftiest way in these bands; in the least band where a UE cannot use its own."""
        return better(narrow, kind.thriftiest(served, bands, deadline), "energy")

    if task.levels and len(best) <= FEW:  # with more UEs, what a price leaves over is negligible
        split = _split(served, least, most, total_band, deadline)
        tried = [
            _filled(kind, served, bands, most, total_band, deadline, grid[:, 0])
            for bands in (best, split)
        ]
        best = min(tried, key=lambda bands: float(sent_in(bands).energy.sum()))
    chosen = sent_in(best)
    total = float(chosen.energy.sum())
    plan = _plan(served, chosen)
    return spread(task, plan, lower=math.nan, residual=max(total - bound, 0.0) / total, able=able)


def _priced(energy: Array, bands: Array, total_band: float) -> tuple[np.ndarray, float]:
    """The rows of least energy + price band at the lowest price at which the bands fit, and the
    dual bound.
    """
    column = np.arange(energy.shape[1])
    place = energy.argmin(axis=0)
    if float(bands[place, column].sum()) <= total_band:
        return place, float(energy[place, column].sum())
    finite = energy[np.isfinite(energy)]
    low = math.log(1e-12 * finite.max() / bands.max())
    high = math.log(1e6 * finite.max() / bands.min())
    bound = -math.inf
    while low < (middle := 0.5 * (low + high)) < high:  # until there is no float in between
        price = math.exp(middle)
        tried = (energy + price * bands).argmin(axis=0)
        used = float(bands[tried, column].sum())
        bound = max(bound, float(energy[tried, column].sum()) + price * (used - total_band))
        if used <= total_band:
            place = tried
            high = middle
        else:
            low = middle
    return place, bound


def _split(task: Task, least: Array, most: Array, total_band: float, deadline: float) -> Array:
    """The bands of least energy where the spare band is dealt out in PIECES equal pieces, by
    dynamic programming.
    """
    piece = max(total_band - float(least.sum()), 0.0) / PIECES
    bands = np.minimum(least + piece * np.arange(PIECES + 1)[:, None], most)
    trial = steps.thriftiest(task, bands, deadline)
    energy = np.where(trial.able, trial.energy, task.max_energy)  # the least band is feasible
    total = energy[:, 0]
    picks = []
    for i in range(1, len(least)):
        before = np.concatenate([np.full(PIECES, np.inf), total])
        rest = np.lib.stride_tricks.sliding_window_view(before, PIECES + 1)[:, ::-1]
        cost = rest + energy[:, i]  # row: pieces dealt out so far, column: those of UE i
        picks.append(cost.argmin(axis=1))
        total = cost.min(axis=1)
    pieces = np.zeros(len(least), np.int64)
    left = PIECES
    for i in range(len(least) - 1, 0, -1):
        pieces[i] = picks[i - 1][left]
        left -= int(pieces[i])
    pieces[0] = left
    return np.asarray(bands[pieces, np.arange(len(least))])


def _filled(
    kind: ModuleType,
    task: Task,
    band: Array,
    most: Array,
    total_band: float,
    deadline: float,
    grid: Array,
) -> Array:
    """The bands after what was left over has been offered to one UE after another."""
    left = max(total_band - float(band.sum()), 0.0)
    room = np.maximum(np.minimum(band + left, most), band)
    wider = band + (room - band) * grid[:, None]
    trial = kind.thriftiest(task, wider, deadline)
    energy = np.where(trial.able, trial.energy, np.inf)
    filled = band.copy()
    for i in range(len(band)):
        affordable = np.where(wider[:, i] - band[i] <= left, energy[:, i], np.inf)
        filled[i] = wider[int(affordable.argmin()), i]
        left -= filled[i] - band[i]
    return filled


def _some(point: Point, ues: BoolArray) -> Point:
    return Point._make(np.broadcast_to(value, ues.shape)[ues] for value in point)


def _plan(task: Task, point: Point) -> Plan:
    """The plan of UEs that are able, and what it costs."""
    power = np.minimum(point.snr * point.band / task.gain_to_noise, task.max_power)
    frequency = np.clip(task.cycles / point.compute_time, task.min_frequency, task.max_frequency)
    t = task.bits * math.log(2.0) / (point.band * point.y)
    energy = task.kappa * task.cycles * frequency**2 + (power + task.circuit_power) * t
    return Plan(np.asarray(point.band), power, frequency, task.cycles / frequency + t, energy)
