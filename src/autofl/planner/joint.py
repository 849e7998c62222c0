"""The joint planner: who takes part, local steps, samples, bits, CPU frequency, power and band, for
the least time.

Each round maximises progress - lambda * time, where lambda is the run's long-term progress per
second (Dinkelbach). docs/joint-planner.md has the formulation, the proof and what it does not
model.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from autofl.errors import AutoFLError
from autofl.network import Cell, Plan, Status, drawn_power, fixed_time, make_plan
from autofl.planner.allocation import Allocation, Laws, Task, laws_of
from autofl.planner.base import MIN_SAMPLES, Memory, power_limit, whole
from autofl.planner.choices import Options, choose, make_options
from autofl.planner.exact import ACCURACY, ExactPlanner
from autofl.planner.pace import Pace
from autofl.planner.power import least_upload
from autofl.ranges import Checked, Range
from autofl.units import Array, BoolArray, IntArray

STEPS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32])
SAMPLES = np.array([3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50])
"""tau and d to choose from."""
MOST_SAMPLES = 1_000_000
"""Upper limit of `most_samples`; more must be a typing error."""
COARSE = 1.25
FINE = 1.05
"""Ratio of neighbouring trial deadlines, at first and around the best one."""
WIDEST = 40
"""Trial deadlines in a first round: COARSE^40 is a factor of 7,500."""
AT_ONCE = 4
"""Trial deadlines of a first round that are judged together, until no longer one can be better."""
MANY = 2_000
"""Options of all UEs from which that saves time."""
SAMPLED = 512
"""With more UEs than this, the deadline is found on a sample of this many."""
LONG = 1e4
"""Multiple of the shortest round beyond which no UE gains from a longer deadline."""
MOST_THRIFT = 10.0
"""A CPU slows down by a factor of 10 at most unless told otherwise; a longer round saves nothing
more.
"""
BINDS = 1e-3
"""A budget binds when less than this share of it is left."""


@dataclass(frozen=True)
class JointPlanner(Checked):
    """Every decision of a round at once; each can be switched off, and with all off it is the
    `exact` planner.

    Two fields come from the run unless set: `pace` from pilots, `rates` from the compressor.
    """

    admission: Annotated[bool, "decide which selected UEs take part"] = True
    steps: Annotated[bool, "decide local steps"] = True
    samples: Annotated[bool, "decide samples; else 1/epsilon"] = True
    frequency: Annotated[bool, "decide CPU frequencies"] = True
    band: Annotated[bool, "share the band; else each UE has its own"] = True
    bits: Annotated[bool, "decide the bits per weight"] = True
    thrift: Annotated[
        float,
        Range(ge=0, le=MOST_THRIFT),
        "how much longer than the least time a round may take to save energy",
    ] = 0.0
    floor: Annotated[
        float,
        Range(ge=0, le=1),
        "least share of its rounds in which a UE that can be heard takes part",
    ] = 0.5
    patience: Annotated[
        int,
        Range(ge=0),
        "rounds by which it may fall behind that share to wait for a better channel",
    ] = 4
    least_steps: Annotated[int, Range(ge=1, le=int(STEPS[-1])), "fewest local steps"] = 2
    least_samples: Annotated[
        int, Range(ge=MIN_SAMPLES, le=int(SAMPLES[-1])), "fewest samples of a local step"
    ] = 12
    most_samples: Annotated[
        int,
        Range(ge=MIN_SAMPLES, le=MOST_SAMPLES),
        "most samples of a local step, unless least_samples is more",
    ] = 20
    least_bits: Annotated[
        float, Range(ge=0, le=32), "fewest bits per weight, if the compressor offers them"
    ] = 0.15
    epsilon: Annotated[float, ACCURACY, "accuracy; 1/epsilon samples if they are not decided"] = (
        0.02
    )
    pace: Annotated[
        list[float] | None, "constant, per_step, per_ue, noise, rounding; default: the package's"
    ] = None
    rates: Annotated[
        list[list[float]] | None,
        "[bits per weight, variance] to choose from; default: the compressor's",
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        told = self.rates or []
        if any(
            len(rate) != 2 or not 0.0 < rate[0] < np.inf or not 0.0 <= rate[1] < np.inf
            for rate in told
        ):
            raise AutoFLError(
                "rates: each must be [bits per weight > 0, variance >= 0], for example [[1.0, 1.5]]"
            )
        _ = self.learning

    @property
    def learning(self) -> Pace:
        return Pace() if self.pace is None else Pace.of(self.pace)

    @property
    def needs_compressor(self) -> bool:
        """Without a compressor, planned bits would make a round cheaper than what is sent."""
        return self.bits and bool(self.rates)

    @property
    def decides(self) -> bool:
        return (
            self.admission or self.steps or self.samples or self.frequency or self.band or self.bits
        )

    def init(self, cell: Cell) -> Memory:
        """Progress and time so far, the last deadline, and how often each UE was asked and heard."""
        names = ("progress", "time", "deadline")
        return {name: np.zeros(()) for name in names} | {
            name: np.zeros(cell.num_ue) for name in ("asked", "heard")
        }

    def __call__(self, cell: Cell, channel_gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        if not self.decides:
            return ExactPlanner(self.epsilon)(cell, channel_gain, memory)
        order = np.argsort(
            cell.ue, kind="stable"
        )  # sums must not depend on the order in which UEs are named
        back = np.argsort(order, kind="stable")
        plan, memory = self._plan(cell.take(order), channel_gain[order], memory)
        return plan.part(back), memory

    def _plan(self, cell: Cell, gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        options = self._options(cell, gain)
        cycles = (
            cell.cycles_per_sample[:, None]
            * options.local_steps
            * np.maximum(options.num_samples, 1)
        )
        bits = options.bits_per_weight * cell.num_weights
        task = Task.of(cell, gain, cycles, bits, self.frequency)

        # A UE that has fallen behind its share counts more, and beyond our patience it must come.
        behind = np.maximum(self.floor * memory["asked"][cell.ue] - memory["heard"][cell.ue], 0.0)
        due = behind > self.patience
        worth = options.progress * (1.0 + behind)[:, None]
        total = float(cell.bandwidth.sum()) if self.band else None
        search = _Search(laws_of(task), worth, due if self.admission else None, total, cell, gain)
        rate = float(memory["progress"] / memory["time"]) if memory["time"] > 0.0 else None
        picked = search.best(rate, float(memory["deadline"]))
        takes_part = picked >= 0
        counts = _counted(memory, cell.ue, takes_part)
        if not takes_part.any():
            nobody = np.zeros(cell.num_ue)
            plan = make_plan(cell, num_samples=nobody, tx_power=nobody, feasible=takes_part)
            return plan, dict(memory) | counts

        # The options are given now, and the allocation of band, power and frequency is exact.
        ue = np.flatnonzero(takes_part)
        option = picked[takes_part]
        laws = laws_of(task.at(task.cycles.shape, ue, option))
        solved = self._allocated(laws, total, cell.bandwidth[ue])
        solved = replace(solved, power=cell.pa_efficiency * solved.power)  # radiated, not drawn
        plan = _as_plan(cell, gain, options, ue, option, solved, search.possible)

        # Progress per second of all rounds so far is what a second of the next one is worth.
        progress = options.progress[ue, option].sum()
        round_time = solved.time + float(fixed_time(cell, gain, takes_part))
        learned = {
            "progress": np.asarray(memory["progress"] + progress),
            "time": np.asarray(memory["time"] + round_time),
            "deadline": np.asarray(solved.time),
        }
        return plan, dict(memory) | counts | learned

    def _options(self, cell: Cell, gain: Array) -> Options:
        """What each UE may be told to do, arrays of shape (num_ue, num_options)."""
        # What is not decided has one value: the cell's, or 1/epsilon samples.
        own_rate = [float(cell.bits_per_weight.max()), 0.0]
        known = sorted(self.rates or [])
        offered = [rate for rate in known if rate[0] >= self.least_bits] or known[-1:]
        rates = np.array(offered if self.bits and offered else [own_rate])
        steps = np.array([int(cell.local_steps.max())])
        if self.steps:
            steps = STEPS[self.least_steps <= STEPS]
        samples = np.array([int(whole(np.asarray(1.0 / self.epsilon)))])
        if self.samples:
            allowed = SAMPLES[(self.least_samples <= SAMPLES) & (self.most_samples >= SAMPLES)]
            samples = allowed if len(allowed) else np.array([self.least_samples])
        grid = make_options(
            self.learning,
            tuple(steps.tolist()),
            tuple(samples.tolist()),
            tuple((bits, variance) for bits, variance in rates.tolist()),
            cell.num_ue,
        )

        # Of each UE: it may own fewer samples, or accuracy yields to energy, as in `exact`.
        d = np.minimum(grid.num_samples, np.floor(cell.data_size)[:, None])
        tau = np.broadcast_to(grid.local_steps.astype(np.float64), d.shape)
        bits = np.broadcast_to(grid.bits_per_weight, d.shape)
        if not self.samples:
            lowest = cell.min_cpu_frequency if self.frequency else cell.cpu_frequency
            d = np.minimum(d, _affordable(cell, gain, tau, bits, lowest))
        variance = np.interp(bits, rates[:, 0], rates[:, 1])
        progress = self.learning.progress(tau, np.maximum(d, 1.0), variance, cell.num_ue)
        return Options(
            tau.astype(np.int64),
            d.astype(np.int64),
            bits,
            np.where(d >= MIN_SAMPLES, progress, 0.0),
        )

    def _allocated(self, laws: Laws, total: float | None, own: Array) -> Allocation:
        """The least time, then the least energy within that time or, with `thrift`, a longer one."""
        if total is None:
            fastest = laws.allocate_fixed_band(own)
            frugal = laws.least_energy_fixed_band(own, fastest.time * (1.0 + self.thrift))
        else:
            fastest = laws.allocate(total)
            frugal = laws.least_energy(total, fastest.time * (1.0 + self.thrift))
        if not frugal.able.all():  # rounding at the very edge of a deadline must not end a run
            return fastest
        return replace(frugal, certificate=fastest.certificate)


@dataclass(frozen=True)
class _Search:
    """The best options over all deadlines; arrays of shape (num_ue, num_options)."""

    laws: Laws
    progress: Array
    due: BoolArray | None  # UEs that may not be left out; None: nobody who can take part may be
    total: float | None  # band [Hz] that all share; None where each UE has its own
    cell: Cell
    gain: Array

    @cached_property
    def fixed_time(self) -> float:
        """Overhead and downlink, to the weakest UE that can take part; who will is not known yet."""
        return float(fixed_time(self.cell, self.gain, self.possible))

    @cached_property
    def shortest(self) -> Array:
        """The least deadline of each option if it had the whole band; infinite where the option is
        impossible.
        """
        able = self.progress > 0.0
        # A weak UE may miss phi in its own band though a narrower one would do.
        if self.total is None:
            task = self.laws.task
            strongest = task.max_power * task.gain_to_noise
            able = able & (strongest >= task.phi * self.cell.bandwidth[:, None])
        return np.where(able, self.laws.shortest, np.inf)

    @cached_property
    def rows(self) -> IntArray:
        """The UEs on which the deadline is found."""
        num = self.cell.num_ue
        return np.linspace(0, num - 1, min(num, SAMPLED)).astype(np.int64)

    @cached_property
    def sampled(self) -> Laws:
        """What these have to do."""
        if len(self.rows) == self.cell.num_ue:
            return self.laws
        return laws_of(self.laws.task.at(self.progress.shape, self.rows))

    @cached_property
    def possible(self) -> BoolArray:
        """UEs that can take part at all."""
        return np.asarray(np.isfinite(self.shortest).any(axis=1))

    @cached_property
    def must(self) -> BoolArray:
        """UEs that may not be left out; with circuit power even a slow upload needs some band, so
        as many as fit.
        """
        must = self.possible if self.due is None else self.possible & self.due
        if self.laws.task.circuit_power == 0.0 or self.total is None or not must.any():
            return must
        ever = LONG * float(self.shortest[must].min(axis=1).max())
        ever_needs = self._least_band(self.laws, self.shortest, np.array(ever))
        need = np.where(must, ever_needs.min(axis=1), np.inf)
        order = np.argsort(need, kind="stable")
        fits = np.zeros(len(must), np.bool_)
        fits[order] = np.cumsum(need[order]) <= self.total * (1.0 - 1e-9)
        return must & fits

    def best(self, rate: float | None, last: float) -> IntArray:
        """The option of each UE, -1 for one that is left out.

        Args:
            rate: lambda, progress per second; None where it is not known yet.
            last: deadline of the round before [s], 0 where there is none.
        """
        if not self.possible.any():
            return np.full(len(self.possible), -1)

        # Rounds differ little, so the search begins at the last deadline; the first one looks at
        # all from the shortest on.
        must = self.must if self.must.any() else self.possible
        least = self.shortest[must].min(axis=1)
        soonest = least.max() if self.must.any() else least.min()
        known = last > 0.0
        first = max(last, soonest) if known else soonest
        trials = first * COARSE ** (np.arange(-2.0, 3.0) if known else np.arange(0.0, WIDEST))
        deadline, edge = self._best_of(trials, rate)

        # Where options jump, the best may lie at an edge again and again.
        for _ in range(WIDEST):
            if not edge or (not known and deadline < trials[-1]):
                break
            deadline, edge = self._best_of(deadline * COARSE ** np.arange(-2.0, 3.0), rate)

        # Options jump: the best may lie just below the next shorter trial, which was judged with
        # time to spare.
        shorter = -3.0 if known else -7.0
        deadline, _ = self._best_of(deadline * FINE ** np.arange(shorter, 4.0), rate)

        # Too short for one that must take part and was not among the sampled?
        everybody = np.arange(self.cell.num_ue)
        for _ in range(WIDEST):
            picked, progress = self._choices(np.array([deadline]), everybody, self.laws)
            if np.isfinite(progress[0]):
                break
            deadline *= COARSE
        return picked[0]

    def _best_of(self, deadlines: Array, rate: float | None) -> tuple[float, bool]:
        """The deadline at which progress - lambda time is greatest, and whether it is the first or
        last of them.
        """
        time = deadlines + self.fixed_time
        progress = self.progress[self.rows]
        everybody = self.cell.num_ue / len(self.rows)

        def score(progress: Array, time: Array) -> Array:
            gain = progress / time if rate is None else progress * everybody - rate * time
            return np.where(progress > 0.0, gain, -np.inf)  # an empty round gains nothing

        # Nobody gains more than by the best option; that bounds the score of a deadline, and of all
        # longer ones.
        possible = np.isfinite(self.shortest[self.rows])
        most = np.where(possible, progress, 0.0).max(axis=1).sum()
        bound = score(most * (1.0 + 1e-9), time)
        many = len(deadlines) == WIDEST and progress.size >= MANY
        at_once = AT_ONCE if many else len(deadlines)
        scores = np.full(len(deadlines), -np.inf)
        for begin in range(0, len(deadlines), at_once):
            if bound[begin] < scores.max():
                break
            block = slice(begin, begin + at_once)
            _, gained = self._choices(deadlines[block], self.rows, self.sampled)
            scores[block] = score(gained, time[block])

        # All too short for those that must take part: go on from the longest.
        best = int(scores.argmax()) if np.isfinite(scores).any() else len(deadlines) - 1
        return float(deadlines[best]), best in (0, len(deadlines) - 1)

    def _choices(self, deadlines: Array, ues: IntArray, laws: Laws) -> tuple[IntArray, Array]:
        """`choose` for these UEs, who get their share of the band."""
        band = self._least_band(laws, self.shortest[ues], deadlines[:, None, None])
        own = self.cell.bandwidth[ues]
        total = None if self.total is None else self.total * len(ues) / self.cell.num_ue
        return choose(band, self.progress[ues], self.must[ues], total, own)

    @staticmethod
    def _least_band(laws: Laws, shortest: Array, deadline: Array) -> Array:
        return np.where(np.isfinite(shortest), laws.least_band(deadline), np.inf)


def _affordable(cell: Cell, gain: Array, tau: Array, bits: Array, frequency: Array) -> Array:
    """The most samples that leave energy for the least upload, at this frequency, shape (num_ue,
    num_options).

    The least upload has its own band, or a narrower one in which its power reaches phi. Without
    circuits all bands take the same energy.
    """
    ues = np.repeat(np.arange(cell.num_ue), bits.shape[1])
    options = cell.take(ues).having(update_bits=(bits * cell.num_weights).ravel())
    power, energy = least_upload(options, np.maximum(gain, 1e-300)[ues])
    power = power.reshape(bits.shape)
    energy = energy.reshape(bits.shape)

    # In a band narrower by that factor the upload takes longer, and the circuits draw for longer.
    longer = np.maximum(power / cell.max_power[:, None], 1.0)
    time = energy / drawn_power(cell, power)
    energy = energy + cell.circuit_power * time * (longer - 1.0)
    per_sample = 0.5 * cell.capacitance * (cell.cycles_per_sample * frequency**2)[:, None] * tau
    return whole((cell.max_energy[:, None] - energy) / per_sample)


def _counted(memory: Memory, ue: IntArray, takes_part: BoolArray) -> dict[str, Array]:
    """How often each UE was asked and heard, this round included."""
    asked = memory["asked"].copy()
    heard = memory["heard"].copy()
    asked[ue] += 1.0
    heard[ue] += takes_part
    return {"asked": asked, "heard": heard}


def _as_plan(
    cell: Cell,
    gain: Array,
    options: Options,
    ue: IntArray,
    option: IntArray,
    solved: Allocation,
    possible: BoolArray,
) -> Plan:
    """The plan of the whole round from what the UEs that take part are told."""

    def spread(values: Array | IntArray, others: Array | float) -> Array:
        filled = np.array(np.broadcast_to(others, cell.num_ue), dtype=np.float64)
        filled[ue] = values
        return filled

    takes_part = spread(solved.able.astype(np.float64), 0.0) > 0.0
    power = spread(solved.power, 0.0)
    band = spread(solved.band, cell.bandwidth)

    # What binds: the budget, and the top of the rate law or P_max.
    spent = spread(solved.energy, 0.0) >= (1.0 - BINDS) * cell.max_energy
    plan = make_plan(
        cell,
        num_samples=spread(options.num_samples[ue, option], 0.0),
        tx_power=power,
        feasible=takes_part,
        samples_limit=np.where(spent, Status.ENERGY, Status.ACCURACY).astype(np.int8),
        power_limit=power_limit(cell.having(bandwidth=band), gain, power, slack=BINDS),
        local_steps=spread(options.local_steps[ue, option], cell.local_steps),
        cpu_frequency=spread(solved.frequency, cell.cpu_frequency),
        bandwidth=band,
        bits_per_weight=spread(options.bits_per_weight[ue, option], cell.bits_per_weight),
    )
    left_out = np.where(possible & ~takes_part, Status.LEFT_OUT, plan.status).astype(np.int8)
    return replace(plan, status=left_out, certificate=solved.certificate)
