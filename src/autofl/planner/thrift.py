"""Least energy for a deadline: what UEs with time to spare can save (docs/joint-planner.md).

Like the allocation, the problem is convex in the logarithms. Given one price on band, each UE
chooses on its own; the right price is the one at which the bands add up to the total.
"""

import math

import numpy as np

from autofl.errors import AutoFLError
from autofl.planner.band import GUARD, Task, least_band, spectral_efficiency
from autofl.planner.fixed_band import Allocation, Plan, carried_out, fixed_band_plan, part, spread
from autofl.units import Array


def least_energy(
    task: Task, total_band: float, deadline: float, tolerance: float = 1e-9, max_steps: int = 60
) -> Allocation:
    """The allocation of least total energy among those that make the deadline.

    Newton's method on the logarithms of all bands together: -d energy_i/d B_i, the price UE i would
    pay, becomes the same for all but those at an end of their range. With the shortest T as
    deadline it saves what the faster UEs do not need.

    Args:
        task: one set of UEs, shape (num_ue,).
        total_band: B_tot [Hz].
        deadline: T [s], not shorter than that of `allocate`.
        tolerance: relative change of the bands at which the steps end.
    Returns:
        An allocation whose `residual` is the relative spread of the price; no UE uses more than its
        budget.
    """
    able = task.limits.able
    if not able.any():
        return spread(task, None, lower=math.nan, residual=0.0)
    served = part(task, able)
    least = least_band(served, deadline) * (1.0 - 3.0 * GUARD)
    if not float(least.sum()) <= total_band * (1.0 + 1e-9):
        raise AutoFLError(
            f"allocation: deadline = {deadline:g} s is too short; allocate() gives the shortest"
        )
    least = least * min(1.0, total_band * (1.0 - 3.0 * GUARD) / float(least.sum()))
    most = np.maximum(_most_band(served, deadline), least)
    band = most
    residual = 0.0
    if float(least.sum()) > total_band * (1.0 - 1e-9):
        band = least
    elif float(most.sum()) > total_band:
        log_band, residual = _priced(
            served, deadline, total_band, least, most, tolerance, max_steps
        )
        band = np.exp(log_band)
    spare = max(total_band * (1.0 - 3.0 * GUARD) - float(least.sum()), 0.0)
    band = least + (band - least) * min(1.0, spare / max(float((band - least).sum()), 1e-300))
    plan = thrifty_plan(served, band, deadline)
    return spread(task, plan, lower=math.nan, residual=residual)


def least_energy_fixed_band(task: Task, band: Array | float, deadline: float) -> Allocation:
    """The same in given bands: each UE on its own, with a deadline no shorter than its own least
    time.
    """
    shape = task.limits.able.shape
    band = np.broadcast_to(np.asarray(band, dtype=np.float64), shape)
    able = (
        task.limits.able
        & (least_band(task, deadline) <= band)
        & (band <= task.limits.widest * (1.0 + 3.0 * GUARD))
    )
    served = part(task, able)
    plan = thrifty_plan(served, band[able], deadline) if able.any() else None
    return spread(task, plan, lower=math.nan, residual=0.0, able=able)


def thrifty_plan(task: Task, band: Array, deadline: float) -> Plan:
    """The plan of least energy in these bands; where rounding would cost time or budget, that of
    least time.
    """
    fast = fixed_band_plan(task, band)
    y, compute_time, _, _ = _thrifty(task, band, deadline)
    power = np.minimum(np.expm1(y) * band / task.gain_to_noise, task.max_power)
    frequency = np.clip(task.cycles / compute_time, task.min_frequency, task.max_frequency)
    slow = carried_out(task, band, power, frequency)
    better = (slow.energy < fast.energy) & (slow.time <= deadline * (1.0 + GUARD))
    return Plan(
        *(np.where(better, after, before) for after, before in zip(slow, fast, strict=True))
    )


def _priced(
    task: Task,
    deadline: float,
    total_band: float,
    least: Array,
    most: Array,
    tolerance: float,
    max_steps: int,
) -> tuple[Array, float]:
    """ln of the bands at which every UE pays the same price, and their last change."""
    stops = np.log(np.stack([least, *_kinks(task, deadline), most]))
    stops[1:3] = np.clip(stops[1:3], stops[0], stops[3])
    stops[1:3].sort(axis=0)
    log_band = np.minimum(stops[0] + max(math.log(total_band / float(least.sum())), 0.0), stops[3])
    seen = np.empty((0, *log_band.shape))
    seen_prices = np.empty((2, 0, *log_band.shape))
    change = math.inf
    price = math.nan
    y = None
    for _ in range(max_steps):
        y, _, prices, slopes = _thrifty(task, np.exp(log_band), deadline, start=y)
        seen = np.concatenate([seen, log_band[None]])
        seen_prices = np.concatenate([seen_prices, prices[:, None]], axis=1)
        wished, price = _adding_up(price, stops, seen, seen_prices, slopes, total_band)
        change = float(np.abs(wished - log_band).max())
        log_band = wished
        if change < tolerance:
            break
    return log_band, change


def _adding_up(
    price: float,
    stops: Array,
    seen: Array,
    seen_prices: Array,
    slopes: Array,
    total_band: float,
    max_steps: int = 60,
) -> tuple[Array, float]:
    """The bands, each along its tangent, at the price at which they add up to the whole; and that
    price.

    Where bands seen before show that the tangent leads too far, the step is halved. Newton's method
    between two bounds.
    """
    last = seen[-1]
    prices = seen_prices[:, -1]
    # no move goes past a kink, where the price jumps
    highest = np.where(stops > last, stops, stops[3]).min(axis=0)
    lowest = np.where(stops < last, stops, stops[0]).max(axis=0)
    bounds = [float(prices.min()) - 60.0, float(prices.max()) + 60.0]
    price = price if bounds[0] < price < bounds[1] else float(prices.mean())
    for _ in range(max_steps):
        left, right = (prices - price) / slopes
        tangent = last + np.minimum(left, 0.0) + np.maximum(right, 0.0)
        wished = np.minimum(np.maximum(tangent, lowest), highest)
        below = np.where(seen_prices[1] > price, seen, -np.inf).max(axis=0)
        above = np.where(seen_prices[0] < price, seen, np.inf).min(axis=0)
        beyond = ((wished <= below) | (wished >= above)) & (np.abs(wished - last) > 1e-9)
        middle = 0.5 * (np.maximum(below, stops[0]) + np.minimum(above, stops[3]))
        wished = np.where(beyond, middle, wished)
        band = np.exp(wished)
        total = float(band.sum())
        surplus = math.log(total / total_band)
        if abs(surplus) < 1e-11 or bounds[1] - bounds[0] < 1e-13:
            break
        bounds[0 if surplus > 0.0 else 1] = price
        follows = (wished == tangent) & (wished != last)
        response = float((band / np.where(left < 0.0, slopes[0], slopes[1]))[follows].sum())
        price += surplus * total / response if response > 0.0 else math.inf
        if not bounds[0] < price < bounds[1]:
            price = 0.5 * (bounds[0] + bounds[1])
    return wished, price


def _kinks(task: Task, deadline: float) -> tuple[Array, Array]:
    """The two bands at which a UE's price jumps: f_max meets the decoding threshold, and f_min
    meets P_max.
    """
    with np.errstate(all="ignore"):
        upload = task.bits * math.log(2.0)
        quick = upload / ((deadline - task.cycles / task.max_frequency) * _lowest_y(task))
        time = deadline - task.cycles / task.min_frequency
        c = task.max_power * time / task.limits.eta
        calm = np.where(
            c > 1.0, upload / (time * spectral_efficiency(np.maximum(c, 1.0 + 1e-9))), np.inf
        )
    return quick, np.where(time > 0.0, calm, np.inf)


def _most_band(task: Task, deadline: float) -> Array:
    """The band beyond which a UE saves nothing: at the decoding threshold, with P_max or with
    f_min.
    """
    with np.errstate(divide="ignore"):
        idle = deadline - task.cycles / task.min_frequency
    narrow = task.bits * math.log(2.0) / (np.maximum(idle, 1e-300) * _lowest_y(task))
    return np.where(idle > 0.0, np.minimum(narrow, task.limits.widest), task.limits.widest)


def _lowest_y(task: Task) -> float:
    return math.log1p(task.phi * (1.0 + GUARD))


def _thrifty(
    task: Task,
    band: Array,
    deadline: float,
    start: Array | None = None,
    tolerance: float = 1e-12,
    max_steps: int = 60,
) -> tuple[Array, Array, Array, Array]:
    """Spectral efficiency and computing time of least energy in a band, ln of the price of band,
    and its slope.

    Energy kappa W^3/s^2 + eta c(y) with t = T - s = M/y, M = Z ln 2/B, is least where D(y) y s^3 =
    2 kappa W^3 M/eta. Prices and slopes, -d energy/d B and -d ln price/d ln B, have a row for the
    left and one for the right.
    The logarithm of the left side is concave and grows with y: Newton's method from the left.
    """
    upload = task.bits * math.log(2.0) / band  # M
    eta = task.limits.eta
    cube = task.kappa * task.cycles**3
    with np.errstate(all="ignore"):
        slowest = task.cycles / task.min_frequency
        at_full_power = np.log1p(task.max_power * task.gain_to_noise / band)
        lowest_y = _lowest_y(task)
        least_y = np.maximum(
            upload / np.maximum(deadline - task.cycles / task.max_frequency, 0.0), lowest_y
        )
        most_y = np.minimum(
            np.where(deadline > slowest, upload / (deadline - slowest), np.inf), at_full_power
        )
        most_y = np.maximum(most_y, least_y)
        goal = np.log(2.0 * cube * upload / eta)
        y = least_y if start is None else np.clip(start, least_y, most_y)
        for _ in range(max_steps):
            x = np.expm1(y)
            c = x / y
            gap = 1.0 + x - c  # D
            growth = (1.0 + x) * y / gap - 1.0  # y D'/D
            time = upload / y
            compute_time = deadline - time
            value = np.log(gap * y * compute_time**3) - goal
            step = -value * y / (growth + 1.0 + 3.0 * time / compute_time)
            moved = np.clip(y + step, least_y, most_y)
            change = np.abs(moved - y)
            y = moved
            if not (change > tolerance * y).any():
                break
        x = np.expm1(y)
        c = x / y
        gap = 1.0 + x - c
        growth = (1.0 + x) * y / gap - 1.0
        time = upload / y
        compute_time = np.minimum(deadline - time, slowest)
        ratio = time / compute_time
        computing = 2.0 * cube / compute_time**3
        xi = x / ((1.0 + x) * y)
        free_slope = 1.0 + growth * (1.0 + 3.0 * ratio) / (1.0 + 3.0 * ratio + growth)
        full_slope = (
            (3.0 * computing / (computing + task.max_power) * ratio + 1.0) * (1.0 - xi)
            + 1.0
            + xi / (1.0 - xi) * (xi - 1.0 / (1.0 + x))
        )
        near = 1.0 + 1e-12
        faint = y <= lowest_y * near
        full = y * near >= at_full_power
        quick = compute_time <= task.cycles / task.max_frequency * near
        calm = compute_time * near >= slowest
        # to the right of a kink the decoding threshold or f_min holds, to the left f_max or P_max;
        # at the widest band
        # the cheaper way back
        box_price = eta * gap
        box_slope = np.where(quick | calm, 1.0 + growth, free_slope)
        faint_price = computing * time
        full_price = (computing + task.max_power) * time * (1.0 - xi)
        by_faint = [faint & ~quick & (faint_price <= box_price), faint & ~calm]
        by_full = [full, full & ~calm]
        prices = [
            np.log(np.where(low, faint_price, np.where(high, full_price, box_price)) / band)
            for low, high in zip(by_faint, by_full, strict=True)
        ]
        slopes = [
            np.where(low, 2.0 + 3.0 * ratio, np.where(high, full_slope, box_slope))
            for low, high in zip(by_faint, by_full, strict=True)
        ]
        return y, compute_time, np.minimum(prices[0], np.stack(prices)), np.stack(slopes)
