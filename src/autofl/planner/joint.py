"""The joint planner: who takes part, local steps, samples, bits, CPU frequency, power and band, for
the least time.

Each round maximises progress - lambda * time, where lambda is the run's long-term progress per
second (Dinkelbach). docs/joint-planner.md has the formulation, the proof and what it does not
model.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from autofl.errors import AutoFLError
from autofl.network import Cell, Certificate, Plan, Status, fixed_time, make_plan
from autofl.planner.allocation import (
    Allocation,
    Task,
    allocate,
    allocate_fixed_band,
    least_band,
    least_energy,
    least_energy_fixed_band,
    shortest,
)
from autofl.planner.base import MIN_SAMPLES, Memory, power_limit, whole
from autofl.planner.choices import Options, choose, highest_price, make_options
from autofl.planner.exact import ACCURACY, ExactPlanner
from autofl.planner.pace import Pace
from autofl.planner.task import affordable_beside, task_of
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
        task = task_of(
            cell, gain, cycles, options.bits_per_weight * cell.num_weights, self.frequency
        )
        behind = np.maximum(self.floor * memory["asked"][cell.ue] - memory["heard"][cell.ue], 0.0)
        due = behind > self.patience
        worth = options.progress * (1.0 + behind)[:, None]
        total = float(cell.bandwidth.sum()) if self.band else None

        def fixed(there: BoolArray) -> float:
            return float(fixed_time(cell, gain, there))

        search = _Search(task, worth, due if self.admission else None, total, cell.bandwidth, fixed)
        rate = float(memory["progress"] / memory["time"]) if memory["time"] > 0.0 else None
        picked = search.best(rate, float(memory["deadline"]))
        takes_part = picked >= 0
        counts = _counted(memory, cell.ue, takes_part)
        if not takes_part.any():
            nobody = np.zeros(cell.num_ue)
            return make_plan(cell, num_samples=nobody, tx_power=nobody, feasible=takes_part), dict(
                memory
            ) | counts
        ue = np.flatnonzero(takes_part)
        option = picked[takes_part]
        solved = self._allocated(task.at(task.cycles.shape, ue, option), total, cell.bandwidth[ue])
        solved = replace(solved, power=cell.pa_efficiency * solved.power)  # radiated, not drawn
        plan = _as_plan(cell, gain, options, ue, option, solved, search.possible)
        progress = options.progress[ue, option].sum()
        learned = {
            "progress": np.asarray(memory["progress"] + progress),
            "time": np.asarray(memory["time"] + solved.time + fixed(takes_part)),
            "deadline": np.asarray(solved.time),
        }
        return plan, dict(memory) | counts | learned

    def _options(self, cell: Cell, gain: Array) -> Options:
        """What each UE may be told to do, arrays of shape (num_ue, num_options)."""
        own_rate = [float(cell.bits_per_weight.max()), 0.0]
        known = sorted(self.rates or [])
        offered = [rate for rate in known if rate[0] >= self.least_bits] or known[-1:]
        rates = np.array(offered if self.bits and offered else [own_rate])
        steps = (
            STEPS[self.least_steps <= STEPS]
            if self.steps
            else np.array([int(cell.local_steps.max())])
        )
        wanted = np.array([int(whole(np.asarray(1.0 / self.epsilon)))])
        allowed = SAMPLES[(self.least_samples <= SAMPLES) & (self.most_samples >= SAMPLES)]
        allowed = allowed if len(allowed) else np.array([self.least_samples])
        samples = allowed if self.samples else wanted
        grid = make_options(
            self.learning,
            tuple(steps.tolist()),
            tuple(samples.tolist()),
            tuple((bits, variance) for bits, variance in rates.tolist()),
            cell.num_ue,
        )
        d = np.minimum(grid.num_samples, np.floor(cell.data_size)[:, None])
        tau = np.broadcast_to(grid.local_steps.astype(np.float64), d.shape)
        bits = np.broadcast_to(grid.bits_per_weight, d.shape)
        if not self.samples:  # accuracy yields to energy, as in `exact`
            lowest = cell.min_cpu_frequency if self.frequency else cell.cpu_frequency
            d = np.minimum(d, affordable_beside(cell, gain, tau, bits, lowest))
        variance = np.interp(bits, rates[:, 0], rates[:, 1])
        progress = self.learning.progress(tau, np.maximum(d, 1.0), variance, cell.num_ue)
        return Options(
            tau.astype(np.int64),
            d.astype(np.int64),
            bits,
            np.where(d >= MIN_SAMPLES, progress, 0.0),
        )

    def _allocated(self, task: Task, total: float | None, own: Array) -> Allocation:
        """The least time, then the least energy within that time or, with `thrift`, a longer one."""
        fastest = allocate_fixed_band(task, own) if total is None else allocate(task, total)
        deadline = fastest.time * (1.0 + self.thrift)
        try:
            if total is None:
                frugal = least_energy_fixed_band(task, own, deadline)
            else:
                frugal = least_energy(task, total, deadline)
        except AutoFLError:  # rounding at the very edge of a deadline must not end a run
            return fastest
        if not frugal.able.all():  # the same
            return fastest
        return replace(frugal, lower=fastest.lower, upper=fastest.upper, residual=fastest.residual)


@dataclass(frozen=True)
class _Search:
    """The best options over all deadlines; arrays of shape (num_ue, num_options)."""

    task: Task
    progress: Array
    due: BoolArray | None  # UEs that may not be left out; None: nobody who can take part may be
    total: float | None
    own: Array
    fixed: Callable[[BoolArray], float]  # time of a round with these UEs, apart from their own

    @cached_property
    def fixed_time(self) -> float:
        """Overhead and downlink, to the weakest UE that can take part; who will is not known yet."""
        return self.fixed(self.possible)

    @cached_property
    def shortest(self) -> Array:
        """The least deadline of each option if it had the whole band; infinite where the option is
        impossible.
        """
        able = self.progress > 0.0
        if (
            self.total is None
        ):  # a weak UE may miss phi in its own band though a narrower one would do
            able = able & (
                self.task.max_power * self.task.gain_to_noise >= self.task.phi * self.own[:, None]
            )
        return np.where(able, shortest(self.task), np.inf)

    @cached_property
    def rows(self) -> IntArray:
        """The UEs on which the deadline is found."""
        num = len(self.own)
        return (
            np.arange(num) if num <= SAMPLED else np.linspace(0, num - 1, SAMPLED).astype(np.int64)
        )

    @cached_property
    def sampled(self) -> Task:
        """What these have to do."""
        return (
            self.task
            if len(self.rows) == len(self.own)
            else self.task.at(self.progress.shape, self.rows)
        )

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
        if self.task.circuit_power == 0.0 or self.total is None or not must.any():
            return must
        ever = LONG * float(self.shortest[must].min(axis=1).max())
        ever_needs = np.where(np.isfinite(self.shortest), least_band(self.task, ever), np.inf)
        need = np.where(must, ever_needs.min(axis=1), np.inf)
        order = np.argsort(need, kind="stable")
        fits = np.zeros(len(must), np.bool_)
        fits[order] = np.cumsum(need[order]) <= self.total * (1.0 - 1e-9)
        return must & fits

    def best(self, rate: float | None, last: float) -> IntArray:
        """The option of each UE, -1 for one that is left out; `rate` is lambda, None where it is
        not known yet.
        """
        if not self.possible.any():
            return np.full(len(self.possible), -1)
        num = len(self.possible)
        least = (
            self.shortest[self.must].min(axis=1).max() if self.must.any() else self.shortest.min()
        )
        first = max(last, least) if last > 0.0 else least
        trials = first * COARSE ** np.arange(*((-2.0, 3.0) if last > 0.0 else (0.0, WIDEST)))
        deadline, edge = self._best_of(trials, rate)
        for _ in range(WIDEST):  # where options jump, the best may lie at an edge again and again
            if not edge or (last <= 0.0 and deadline < trials[-1]):
                break
            deadline, edge = self._best_of(deadline * COARSE ** np.arange(-2.0, 3.0), rate)
        # Options jump: the best may lie just below the next shorter trial, which was judged with
        # time to spare.
        shorter = -3.0 if last > 0.0 else -7.0
        deadline, _ = self._best_of(deadline * FINE ** np.arange(shorter, 4.0), rate)
        for _ in range(WIDEST):
            picked, progress = self._choices(np.array([deadline]), np.arange(num))
            if np.isfinite(progress[0]):
                break
            deadline *= (
                COARSE  # too short for one that must take part and was not among the sampled
            )
        return picked[0]

    def _best_of(self, deadlines: Array, rate: float | None) -> tuple[float, bool]:
        """The deadline at which progress - lambda time is greatest, and whether it is the first or
        last of them.
        """
        time = deadlines + self.fixed_time
        progress = self.progress[self.rows]

        def score(progress: Array, time: Array) -> Array:
            gain = (
                progress / time
                if rate is None
                else progress * len(self.own) / len(self.rows) - rate * time
            )
            return np.where(progress > 0.0, gain, -np.inf)  # an empty round gains nothing

        highest = None
        at_once = len(deadlines)
        if len(deadlines) == WIDEST and progress.size >= MANY:
            highest = self._highest_price(deadlines)
            at_once = AT_ONCE
        # Nobody gains more than by the best option; that bounds the score of a deadline, and of all
        # longer ones.
        most = np.where(np.isfinite(self.shortest[self.rows]), progress, 0.0).max(axis=1).sum()
        bound = score(most * (1.0 + 1e-9), time)
        scores = np.full(len(deadlines), -np.inf)
        for begin in range(0, len(deadlines), at_once):
            if bound[begin] < scores.max():
                break
            some = slice(begin, begin + at_once)
            scores[some] = score(self._choices(deadlines[some], self.rows, highest)[1], time[some])
        # All too short for those that must take part: go on from the longest.
        place = int(scores.argmax()) if np.isfinite(scores).any() else len(deadlines) - 1
        return float(deadlines[place]), place in (0, len(deadlines) - 1)

    def _highest_price(self, deadlines: Array) -> float | None:
        """Of all these deadlines together, so that it does not matter which of them are judged at
        once.
        """
        total = self._total(self.rows)
        rows = self.rows
        if total is None:
            return None
        task = self.sampled
        shortest = self.shortest[rows]

        def bands(places: slice, ues: IntArray, options: IntArray) -> Array:
            some = task.at(shortest.shape, ues, options)
            return np.where(
                np.isfinite(shortest[ues, options]),
                least_band(some, deadlines[places, None, None]),
                np.inf,
            )

        return highest_price(bands, len(deadlines), self.progress[rows], self.must[rows], total)

    def _choices(
        self, deadlines: Array, rows: IntArray, highest: float | None = None
    ) -> tuple[IntArray, Array]:
        band = least_band(
            self.sampled if rows is self.rows else self.task, deadlines[:, None, None]
        )
        band = np.where(np.isfinite(self.shortest[rows]), band, np.inf)
        return choose(
            band, self.progress[rows], self.must[rows], self._total(rows), self.own[rows], highest
        )

    def _total(self, rows: IntArray) -> float | None:
        return None if self.total is None else self.total * len(rows) / len(self.own)


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
        filled = (
            np.full(cell.num_ue, others)
            if np.ndim(others) == 0
            else np.array(others, dtype=np.float64)
        )
        filled[ue] = values
        return filled

    takes_part = spread(np.ones(len(ue)), 0.0) > 0.0
    spent = spread(solved.energy, 0.0) >= (1.0 - BINDS) * cell.max_energy
    power = spread(solved.power, 0.0)
    band = spread(solved.band, cell.bandwidth)
    limit = power_limit(cell.having(bandwidth=band), gain, power)
    if limit is None:
        limit = np.where(
            power >= (1.0 - BINDS) * cell.max_power, Status.POWER, Status.ENERGY
        ).astype(np.int8)
    plan = make_plan(
        cell,
        num_samples=spread(options.num_samples[ue, option], 0.0),
        tx_power=power,
        feasible=takes_part,
        samples_limit=np.where(spent, Status.ENERGY, Status.ACCURACY).astype(np.int8),
        power_limit=limit,
        local_steps=spread(options.local_steps[ue, option], cell.local_steps),
        cpu_frequency=spread(solved.frequency, cell.cpu_frequency),
        bandwidth=band,
        bits_per_weight=spread(options.bits_per_weight[ue, option], cell.bits_per_weight),
    )
    left_out = np.where(possible & ~takes_part, Status.LEFT_OUT, plan.status).astype(np.int8)
    return replace(
        plan, status=left_out, certificate=Certificate(solved.lower, solved.upper, solved.residual)
    )
