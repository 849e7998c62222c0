"""Shannon's law, with circuits that draw no power: the paper's cell, by Newton's method.

A UE computes W cycles in s = W/f seconds and sends Z bits in t seconds. With the spectral
efficiency y = ln(1 + x), x = p a/B its SNR, everything is explicit (docs/joint-planner.md has the
derivation):

    band B = Z ln 2/(t y),    upload energy p t = eta c,    eta = Z ln 2/a,    c(y) = (exp(y) - 1)/y

The problem is convex in the logarithms, for the least time as for the least energy.
"""

import math
from dataclasses import replace

import numpy as np

from autofl.network import Certificate
from autofl.planner.allocation.certificate import kkt_residual
from autofl.planner.allocation.result import Allocation, Outcome
from autofl.planner.allocation.roots import (
    computing_share,
    excess,
    fills_band,
    meets_deadline,
    power_crossing,
    spectral_efficiency,
)
from autofl.planner.allocation.task import FOREVER, Task
from autofl.units import Array, BoolArray

GUARD = 2e-14
"""Budgets are read as E (1 - GUARD) and phi as phi (1 + GUARD): rounding then stays on the feasible
side.
"""
NEAR = 1.0 + 1e-12
"""Ratio within which a decision stands at a bound; a decision that was clipped to it does."""


class ShannonLaws:
    """The UEs of a task under Shannon's law. What bounds each UE at every deadline is worked out
    once.

    s0 = sqrt(kappa W^3 / E) is the time in which computing alone would use up E, and w = s0/s, so
    that computing in time s takes E w^2 and leaves c = (1 - w^2)/eps for sending, eps = eta/E.

    Args:
        task: what the UEs have to do.
        tolerance: surplus of band at which the last step for the least time is taken; the remaining
            error is about its square.
        max_steps: more than ever needed; with fewer, the bounds show how close the result is.
    """

    BAND_TOLERANCE = 1e-9
    """Relative change of the bands at which the steps for the least energy end: energy is flat
    there, and its error the square.
    """

    def __init__(self, task: Task, tolerance: float = 1e-8, max_steps: int = 100) -> None:
        self.task = task
        self.tolerance = tolerance
        self.max_steps = max_steps
        with np.errstate(all="ignore"):
            least_snr = task.phi * (1.0 + GUARD)
            self.least_y = math.log1p(least_snr)
            least_c = least_snr / self.least_y
            energy = np.asarray(task.max_energy * (1.0 - GUARD))
            self.eta = task.bits * math.log(2.0) / task.gain_to_noise
            self.eps = self.eta / energy
            self.s0 = task.cycles * np.sqrt(task.kappa * task.cycles / energy)
            self.pi = task.max_power * self.s0 / energy
            # E_phi = eta phi / ln(1 + phi) [J], the least energy of an upload that is decoded
            self.phi_energy = self.eta * least_c
            # The widest band in which P reaches phi [Hz]
            self.widest = task.max_power * task.gain_to_noise / least_snr

            # The smallest w is that at f_min. The largest is that at f_max, or less where the
            # upload needs the energy to reach phi; NaN where the upload alone exceeds the budget.
            self.smallest_w = self.s0 * task.min_frequency / task.cycles
            decodable = np.sqrt(1.0 - self.eps * least_c)
            self.largest_w = np.minimum(decodable, self.s0 * task.max_frequency / task.cycles)

            # Who can ever take part; the others get numbers that every formula bears.
            self.able = (
                (self.eps > 0.0)
                & (self.pi > 0.0)
                & (self.pi < np.inf)
                & (self.largest_w > 0.0)
                & (self.largest_w >= self.smallest_w)
                & (self.s0 / self.largest_w + self.phi_energy / task.max_power < FOREVER)
            )
            if not self.able.all():
                self.eps = np.where(self.able, self.eps, 0.5 / least_c)
                self.s0 = np.where(self.able, self.s0, 1.0)
                self.pi = np.where(self.able, self.pi, 1.0)
                self.largest_w = np.where(self.able, self.largest_w, 0.5)
                self.smallest_w = np.where(self.able, self.smallest_w, 0.5)

            # The least deadline with any band: at the decoding threshold the band is P a/phi, and
            # the upload takes E_phi / P. With an absurd gain the upload is lost in the rounding of
            # the sum, and its band would be infinite.
            computing = self.s0 / self.largest_w
            least = computing + self.phi_energy / task.max_power
            least = np.maximum(least, computing * (1.0 + GUARD))
            self.shortest = np.where(self.able, least, np.inf)

            # y at the largest w, at the smallest, and at w = 0, where all energy is for sending
            w = np.stack(np.broadcast_arrays(self.largest_w, self.smallest_w, 0.0 * self.eps))
            c = np.maximum((1.0 - w * w) / self.eps, least_c)
            self.ends = spectral_efficiency(c)

            # Up to the first of these deadlines the largest w is best, from the second on the
            # smallest. The deadline at which w is best is the larger of T_E = s (1 + eps D/(2 w^2))
            # and T_P = s + eta c / P.
            s = self.s0 / w[:2]
            by_energy = 0.5 * self.eps * s * excess(self.ends[:2], c[:2]) / w[:2] ** 2
            by_power = self.eps * c[:2] * self.s0 / self.pi
            self.hurries, self.idles = s + np.maximum(by_energy, by_power)

    def least_band(self, deadline: Array) -> Array:
        """b_i(T): the least band with which UE i makes deadline T [Hz]; inf where no band is
        enough. ln b_i is convex and falling in ln T.
        """
        with np.errstate(all="ignore"):
            w, crosses = self._split(deadline)
            upload_time, _, c = self._upload(deadline, w, crosses)
            return self._band(deadline, upload_time, spectral_efficiency(c))

    def band_and_slope(self, deadline: Array | float) -> tuple[Array, Array]:
        """b_i(T) and d b_i/d ln T [Hz], a subgradient where b_i has a kink; inf and -inf where no
        band is enough.
        """
        deadline = np.asarray(deadline, dtype=np.float64)
        with np.errstate(all="ignore"):
            w, crosses = self._split(deadline)
            upload_time, pushed, c = self._upload(deadline, w, crosses)
            y = spectral_efficiency(c)
            band = self._band(deadline, upload_time, y)

            # More time means a longer upload, and more energy for it where the power decides; where
            # energy and power run out together, computing takes its part of the time.
            rate = self.pi / (self.eps * self.s0)  # P / eta
            slope = 1.0 / upload_time + np.where(pushed, rate / excess(y, c), 0.0)
            hold = 2.0 * w**3 / (self.eps * self.s0)  # dc/ds along the energy budget
            slope = np.where(crosses, slope * hold / (hold + rate), slope)
            return band, -slope * band * deadline

    def _split(self, deadline: Array) -> tuple[Array, BoolArray]:
        """The best w for a deadline, and whether energy and power run out together there."""
        w = np.where(deadline >= self.idles, self.smallest_w, self.largest_w)
        moves = (deadline > self.hurries) & (deadline < self.idles)
        crosses = np.zeros(moves.shape, np.bool_)
        if not moves.any():
            return w, crosses

        # In between, it is where shifting energy gains no time, or where energy and power run out
        # together, whichever computes faster. The band is flat around its least, so an error of
        # 1e-8 in the share does not show.
        eps, s0, pi, lowest_y, highest_y, time = _where(
            moves, self.eps, self.s0, self.pi, self.ends[0], self.ends[2], deadline
        )
        lateness = time / s0 - 1.0
        guess = 1.5 * lateness / highest_y
        goal = meets_deadline(lateness)
        share = computing_share(goal, guess, eps, lowest_y, highest_y, tolerance=1e-4)
        at_energy = np.sqrt(share)
        at_power = power_crossing(pi, 1.0 - pi * (time / s0))
        w[moves] = np.maximum(at_power, at_energy)
        crosses[moves] = at_power > at_energy
        return np.minimum(np.maximum(w, self.smallest_w), self.largest_w), crosses

    def _upload(
        self, deadline: Array, w: Array, crosses: BoolArray
    ) -> tuple[Array, BoolArray, Array]:
        """The time for the upload, whether its power is P, and c, its energy in units of eta."""
        upload_time = deadline - self.s0 / w
        by_power = self.pi * (upload_time / self.s0)
        by_energy = 1.0 - w * w
        # On a tie, and at the very shortest deadline, the steeper slope is the one that holds to
        # the left and to the right.
        pushed = (by_power <= by_energy) | (deadline <= self.shortest) | crosses
        sending = np.where(pushed, by_power, by_energy)
        c = np.maximum(sending, self.phi_energy / self.eta * self.eps) / self.eps
        return upload_time, pushed, c

    def _band(self, deadline: Array, upload_time: Array, y: Array) -> Array:
        band = np.minimum(self.task.bits * math.log(2.0) / (upload_time * y), self.widest)
        return np.where(self.able & (deadline >= self.shortest), band, np.inf)

    def allocate(self, total_band: float) -> Allocation:
        """The least T: Newton's method on ln sum_i b_i(T) = ln B_tot in ln T.

        It never overshoots, so each iterate is a lower bound on T; the plan itself, evaluated on
        its own, gives an upper bound.
        """
        # Nobody is faster than alone, nor than with all the band at the highest efficiency.
        rate_limit = float((self.task.bits * math.log(2.0) / self.ends[2]).sum())
        deadline = lower = max(float(self.shortest.max()), rate_limit / total_band)
        outcome = Outcome.STOPPED
        for _ in range(self.max_steps):
            bands, slope = self.band_and_slope(deadline)
            total = float(bands.sum())
            surplus = math.log(total / total_band)
            step = surplus * total / -float(slope.sum())
            lower = max(lower, deadline * math.exp(step))  # the root of a convex function's tangent
            if surplus < self.tolerance or step < 1e-15:
                bands = bands + max(step, 0.0) * slope
                outcome = Outcome.SOLVED
                break
            deadline = lower

        # Rounding must not exceed the band there is.
        bands = bands * (min(1.0, total_band / float(bands.sum())) * (1.0 - 3.0 * GUARD))
        plan = self.fastest(bands)
        residual = kkt_residual(self.task, plan, total_band)
        certificate = Certificate(min(lower, plan.time), plan.time, residual)
        return replace(plan, certificate=certificate, outcome=outcome)

    def allocate_fixed_band(self, band: Array) -> Allocation:
        """The least time of each UE in its own band; too wide a band does not reach phi at P."""
        with np.errstate(all="ignore"):
            snr = self.task.max_power * self.task.gain_to_noise / band
            reaches = self.able & (snr >= self.task.phi * (1.0 - GUARD))
        plan = self._part(reaches).fastest(band[reaches]).among(self.task, reaches)
        return replace(plan, certificate=Certificate(plan.time, plan.time, math.nan))

    def _part(self, chosen: BoolArray) -> "ShannonLaws":
        return self if chosen.all() else ShannonLaws(self.task.part(chosen))

    def fastest(self, band: Array) -> Allocation:
        """The least time of UEs that all reach phi in these bands."""
        task = self.task
        unit_upload = task.bits * math.log(2.0) / (band * self.s0)

        # The best w fulfils s r y = Z ln 2/B. The left side at both ends of w tells whether it lies
        # beyond one of them; that end is best then.
        with np.errstate(all="ignore"):
            w = np.stack([self.largest_w, self.smallest_w])
            y = self.ends[:2]
            turns = 0.5 * self.eps * y * (np.exp(y) - np.expm1(y) / y) / w**3
        slow = unit_upload >= turns[1]
        w = np.where(slow, w[1], w[0])
        y = np.where(slow, y[1], y[0])
        moves = (unit_upload > turns[0]) & ~slow
        if moves.any():
            eps = self.eps[moves]
            goal = fills_band(unit_upload[moves])
            lowest_y = self.ends[0][moves]
            highest_y = self.ends[2][moves]
            guess = unit_upload[moves] / (highest_y * highest_y)
            share = computing_share(goal, guess, eps, lowest_y, highest_y)
            w[moves] = np.clip(np.sqrt(share), self.smallest_w[moves], self.largest_w[moves])
            y[moves] = spectral_efficiency((1.0 - w[moves] ** 2) / eps)

        # Where P_max does not reach that efficiency, the CPU gets the energy that is left over.
        strongest = task.max_power * task.gain_to_noise / band
        at_full_power = np.log1p(strongest)
        capped = at_full_power < y
        if capped.any():
            left = np.sqrt(np.maximum(1.0 - self.eps * strongest / at_full_power, 0.0))
            w = np.where(capped, np.minimum(left, self.largest_w), w)
        power = np.minimum(np.expm1(y) * band / task.gain_to_noise, task.max_power)
        power = np.where(capped, task.max_power, power)
        return self._carried_out(band, power, task.cycles * w / self.s0)

    def _carried_out(self, band: Array, power: Array, frequency: Array) -> Allocation:
        frequency = np.clip(frequency, self.task.min_frequency, self.task.max_frequency)
        efficiency = np.log1p(power * self.task.gain_to_noise / band)
        return Allocation.of(self.task, band, power, frequency, efficiency)

    def least_energy(self, total_band: float, deadline: float) -> Allocation:
        """The least total energy: Newton's method on the logarithms of all bands together.

        Given one price on band, each UE chooses on its own; -d energy_i/d B_i becomes the same for
        all but those at an end of their range. With the shortest T as deadline it saves what the
        faster UEs do not need.

        Args:
            total_band: B_tot [Hz].
            deadline: T [s], not shorter than that of `allocate`.
        Returns:
            An allocation whose `residual` is the relative spread of the price; no UE uses more than
            its budget.
        """
        # Rounding at the very shortest deadline is forgiven, more is not.
        usable = total_band * (1.0 - 3.0 * GUARD)
        least = self.least_band(np.asarray(deadline)) * (1.0 - 3.0 * GUARD)
        if not float(least.sum()) <= total_band * (1.0 + 1e-9):
            return Allocation.of_nobody(self.task, least.shape, Outcome.TOO_SHORT)
        least = least * min(1.0, usable / float(least.sum()))

        # A price is needed only where the band lies between all that is needed and all that is of
        # use.
        most = np.maximum(self._most_band(deadline), least)
        band = most
        residual = 0.0
        if float(least.sum()) > total_band * (1.0 - 1e-9):
            band = least
        elif float(most.sum()) > total_band:
            stops = np.stack([least, *self._kinks(deadline), most])
            log_band, residual = self._priced(stops, deadline, total_band)
            band = np.exp(log_band)
        spare = max(usable - float(least.sum()), 0.0)
        band = least + (band - least) * min(1.0, spare / max(float((band - least).sum()), 1e-300))
        plan = self._thriftiest(band, deadline)
        outcome = Outcome.SOLVED if residual < self.BAND_TOLERANCE else Outcome.STOPPED
        return replace(
            plan, certificate=Certificate(math.nan, plan.time, residual), outcome=outcome
        )

    def least_energy_fixed_band(self, band: Array, deadline: float) -> Allocation:
        """The least energy of each UE in its own band."""
        makes = self.least_band(np.asarray(deadline)) <= band
        able = makes & (band <= self.widest * (1.0 + 3.0 * GUARD))
        return self._part(able)._thriftiest(band[able], deadline).among(self.task, able)

    def _thriftiest(self, band: Array, deadline: float) -> Allocation:
        """The plan of least energy in these bands; where rounding would cost time or budget, that
        of least time.
        """
        fast = self.fastest(band)
        y = self._thrifty_efficiency(band, deadline)
        power = np.minimum(np.expm1(y) * band / self.task.gain_to_noise, self.task.max_power)
        slow = self._carried_out(
            band, power, self.task.cycles / self._compute_time(y, band, deadline)
        )
        better = (slow.energy < fast.energy) & (slow.ue_time <= deadline * (1.0 + GUARD))
        power = np.where(better, slow.power, fast.power)
        return self._carried_out(band, power, np.where(better, slow.frequency, fast.frequency))

    def _most_band(self, deadline: float) -> Array:
        """The band beyond which a UE saves nothing: at the decoding threshold, with P_max or with
        f_min.
        """
        with np.errstate(divide="ignore"):
            idle = deadline - self.task.cycles / self.task.min_frequency
        narrow = self.task.bits * math.log(2.0) / (np.maximum(idle, 1e-300) * self.least_y)
        return np.where(idle > 0.0, np.minimum(narrow, self.widest), self.widest)

    def _kinks(self, deadline: float) -> tuple[Array, Array]:
        """The two bands at which a UE's price jumps: f_max meets the decoding threshold, and f_min
        meets P_max.
        """
        task = self.task
        upload = task.bits * math.log(2.0)
        with np.errstate(all="ignore"):
            quick = upload / ((deadline - task.cycles / task.max_frequency) * self.least_y)
            time = deadline - task.cycles / task.min_frequency
            c = task.max_power * time / self.eta
            calm = upload / (time * spectral_efficiency(np.maximum(c, 1.0 + 1e-9)))
            calm = np.where(c > 1.0, calm, np.inf)
        return quick, np.where(time > 0.0, calm, np.inf)

    def _priced(self, stops: Array, deadline: float, total_band: float) -> tuple[Array, float]:
        """ln of the bands at which every UE pays the same price, and their last change.

        Args:
            stops: the least band, the two at which the price jumps, and the most, shape (4,
                num_ue).
        """
        stretch = max(math.log(total_band / float(stops[0].sum())), 0.0)
        stops = np.log(stops)
        stops[1:3] = np.clip(stops[1:3], stops[0], stops[3])
        stops[1:3].sort(axis=0)
        log_band = np.minimum(stops[0] + stretch, stops[3])
        seen = np.empty((0, *log_band.shape))
        seen_prices = np.empty((2, 0, *log_band.shape))
        change = math.inf
        price = math.nan
        y = None
        for _ in range(self.max_steps):
            band = np.exp(log_band)
            y = self._thrifty_efficiency(band, deadline, start=y)
            prices, slopes = self._prices(y, band, deadline)
            seen = np.concatenate([seen, log_band[None]])
            seen_prices = np.concatenate([seen_prices, prices[:, None]], axis=1)
            wished, price = _adding_up(price, stops, seen, seen_prices, slopes, total_band)
            change = float(np.abs(wished - log_band).max())
            log_band = wished
            if change < self.BAND_TOLERANCE:
                break
        return log_band, change

    def _compute_time(self, y: Array, band: Array, deadline: float) -> Array:
        """s = T - t, or W/f_min, which leaves a pause [s]."""
        with np.errstate(all="ignore"):
            slowest = self.task.cycles / self.task.min_frequency
            return np.minimum(deadline - self.task.bits * math.log(2.0) / band / y, slowest)

    def _thrifty_efficiency(
        self,
        band: Array,
        deadline: float,
        start: Array | None = None,
        tolerance: float = 1e-12,
        max_steps: int = 60,
    ) -> Array:
        """y of least energy in a band.

        Energy kappa W^3/s^2 + eta c(y) with t = T - s = M/y, M = Z ln 2/B, is least where D(y) y
        s^3 = 2 kappa W^3 M/eta. The logarithm of the left side is concave and grows with y:
        Newton's method from the left.
        """
        task = self.task
        upload = task.bits * math.log(2.0) / band  # M
        with np.errstate(all="ignore"):
            # f_max and the decoding threshold bound y from below, f_min and P from above.
            slowest = task.cycles / task.min_frequency
            quickest = task.cycles / task.max_frequency
            at_full_power = np.log1p(task.max_power * task.gain_to_noise / band)
            least_y = np.maximum(upload / np.maximum(deadline - quickest, 0.0), self.least_y)
            calm = np.where(deadline > slowest, upload / (deadline - slowest), np.inf)
            most_y = np.maximum(np.minimum(calm, at_full_power), least_y)

            goal = np.log(2.0 * task.kappa * task.cycles**3 * upload / self.eta)
            y = least_y if start is None else np.clip(start, least_y, most_y)
            for _ in range(max_steps):
                _, gap, growth = _marginal(y)
                time = upload / y
                compute_time = deadline - time
                value = np.log(gap * y * compute_time**3) - goal
                step = -value * y / (growth + 1.0 + 3.0 * time / compute_time)
                moved = np.clip(y + step, least_y, most_y)
                change = np.abs(moved - y)
                y = moved
                if not (change > tolerance * y).any():
                    break
        return y

    def _prices(self, y: Array, band: Array, deadline: float) -> tuple[Array, Array]:
        """ln of the price of band, -d energy/d B, and its slope, -d ln price/d ln B, each with a
        row for the left and one for the right.
        """
        task = self.task
        with np.errstate(all="ignore"):
            x, gap, growth = _marginal(y)
            time = task.bits * math.log(2.0) / band / y
            compute_time = self._compute_time(y, band, deadline)
            ratio = time / compute_time
            computing = 2.0 * (task.kappa * task.cycles**3) / compute_time**3
            xi = x / ((1.0 + x) * y)

            # Inside the bounds of power and frequency, the price is what the amplifier saves.
            # At f_max or f_min the time is given, else it moves with the band.
            near_full = np.log1p(task.max_power * task.gain_to_noise / band) <= y * NEAR
            quick = compute_time <= task.cycles / task.max_frequency * NEAR
            calm = compute_time * NEAR >= task.cycles / task.min_frequency
            box_price = self.eta * gap
            free_slope = 1.0 + growth * (1.0 + 3.0 * ratio) / (1.0 + 3.0 * ratio + growth)
            box_slope = np.where(quick | calm, 1.0 + growth, free_slope)

            # At the decoding threshold or at P_max a wider band takes less time, and the CPU saves.
            faint = y <= self.least_y * NEAR
            faint_price = computing * time
            faint_slope = 2.0 + 3.0 * ratio
            full_price = (computing + task.max_power) * time * (1.0 - xi)
            full_slope = (
                (3.0 * computing / (computing + task.max_power) * ratio + 1.0) * (1.0 - xi)
                + 1.0
                + xi / (1.0 - xi) * (xi - 1.0 / (1.0 + x))
            )

            # To the right of a kink the decoding threshold or f_min holds, to the left f_max or
            # P_max; at the widest band the cheaper way back.
            def choose(by_faint: BoolArray, by_full: BoolArray) -> tuple[Array, Array]:
                price = np.where(by_faint, faint_price, np.where(by_full, full_price, box_price))
                slope = np.where(by_faint, faint_slope, np.where(by_full, full_slope, box_slope))
                return np.log(price / band), slope

            left, left_slope = choose(faint & ~quick & (faint_price <= box_price), near_full)
            right, right_slope = choose(faint & ~calm, near_full & ~calm)
            return np.stack([left, np.minimum(left, right)]), np.stack([left_slope, right_slope])


def _marginal(y: Array) -> tuple[Array, Array, Array]:
    """x = exp(y) - 1, the marginal energy D = 1 + x - c, and its growth y D'/D."""
    x = np.expm1(y)
    gap = 1.0 + x - x / y
    return x, gap, (1.0 + x) * y / gap - 1.0


def _adding_up(
    price: float,
    stops: Array,
    seen: Array,
    seen_prices: Array,
    slopes: Array,
    total_band: float,
    max_steps: int = 60,
) -> tuple[Array, float]:
    """ln of the bands, each along its tangent, at the price at which they add up to the whole; and
    that price, by Newton's method between two bounds.

    Args:
        price: ln of the price before; NaN at first.
        stops: the four bands between which a UE's price has no jump, shape (4, num_ue).
        seen, seen_prices: bands tried before, the last one at the end, and their prices to the left
            and to the right.
        slopes: of the last prices, to the left and to the right.
        max_steps: more than ever needed.
    """
    last = seen[-1]
    prices = seen_prices[:, -1]
    # No move goes past a kink, where the price jumps.
    highest = np.where(stops > last, stops, stops[3]).min(axis=0)
    lowest = np.where(stops < last, stops, stops[0]).max(axis=0)
    # exp(60) is more than prices of one round ever differ by.
    bounds = [float(prices.min()) - 60.0, float(prices.max()) + 60.0]
    price = price if bounds[0] < price < bounds[1] else float(prices.mean())
    for _ in range(max_steps):
        left, right = (prices - price) / slopes
        tangent = last + np.minimum(left, 0.0) + np.maximum(right, 0.0)
        wished = np.minimum(np.maximum(tangent, lowest), highest)

        # Where bands seen before show that the tangent leads too far, the step is halved.
        below = np.where(seen_prices[1] > price, seen, -np.inf).max(axis=0)
        above = np.where(seen_prices[0] < price, seen, np.inf).min(axis=0)
        beyond = ((wished <= below) | (wished >= above)) & (np.abs(wished - last) > 1e-9)
        middle = 0.5 * (np.maximum(below, stops[0]) + np.minimum(above, stops[3]))
        wished = np.where(beyond, middle, wished)

        # Enough when the total is right to rounding, or no price lies between the bounds.
        band = np.exp(wished)
        total = float(band.sum())
        surplus = math.log(total / total_band)
        if abs(surplus) < 1e-11 or bounds[1] - bounds[0] < 1e-13:
            break
        bounds[0 if surplus > 0.0 else 1] = price

        # Only bands that follow their tangent answer to the price.
        follows = (wished == tangent) & (wished != last)
        response = float((band / np.where(left < 0.0, slopes[0], slopes[1]))[follows].sum())
        price += surplus * total / response if response > 0.0 else math.inf
        if not bounds[0] < price < bounds[1]:
            price = 0.5 * (bounds[0] + bounds[1])
    return wished, price


def _where(chosen: BoolArray, *values: Array) -> list[Array]:
    """Each array, spread to the shape of the mask, where the mask is True."""
    return [np.broadcast_to(value, chosen.shape)[chosen] for value in values]
