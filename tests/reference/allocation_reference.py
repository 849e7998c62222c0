"""The allocation again, slowly or by another's solver, and random cells to compare on."""

import math

import numpy as np

from autofl.planner.allocation import Task

KINDS = ("heterogeneous", "tight", "far", "one", "unable", "fixed frequency")


def random_cell(seed):
    """A task of 1 to 10 UEs and the band they share; the kinds take turns."""
    rng = np.random.default_rng((20, seed))
    kind = KINDS[seed % len(KINDS)]
    num_ue = 1 if kind == "one" else int(rng.integers(2, 11))
    spread = {"heterogeneous": 2.0, "unable": 1.0}.get(kind, 0.3)  # decades

    def around(centre, decades=spread):
        return centre * 10.0 ** rng.uniform(-decades, decades, num_ue)

    distance = rng.uniform(10.0, 1500.0 if kind == "far" else 300.0, num_ue)
    gain = rng.exponential(1.0, num_ue) * distance**-3.8
    phi = 10.0 ** rng.uniform(-1.0, 4.0)
    cycles, bits, gain_to_noise = around(1e6), around(1e5), gain / 10.0**-20.4
    max_frequency = around(2e9, 0.3)
    least_upload = bits * math.log(2.0) * phi / (gain_to_noise * math.log1p(phi))
    min_frequency = max_frequency * (1.0 if kind == "fixed frequency" else 0.05)
    least_energy = least_upload + 5e-28 * cycles * min_frequency**2
    if kind == "tight":
        max_energy = least_energy * (1.0 + 10.0 ** rng.uniform(-2.0, 0.5, num_ue))
    elif kind == "unable":
        max_energy = least_energy * rng.choice([0.5, 2.0, 20.0], num_ue)
    else:
        max_energy = np.maximum(around(1e-3), 1.5 * least_energy)
    task = Task(
        cycles=cycles,
        bits=bits,
        gain_to_noise=gain_to_noise,
        max_energy=max_energy,
        max_power=around(0.01, 0.5),
        min_frequency=min_frequency,
        max_frequency=max_frequency,
        phi=phi,
        kappa=5e-28,
    )
    return task, float(num_ue * 10.0 ** rng.uniform(5.0, 7.0))


def rows(task):
    """One task for each UE, as plain numbers."""
    names = (
        "cycles",
        "bits",
        "gain_to_noise",
        "max_energy",
        "max_power",
        "min_frequency",
        "max_frequency",
    )
    arrays = np.broadcast_arrays(*(getattr(task, name) for name in names))
    return [tuple(float(value) for value in row) for row in zip(*arrays, strict=True)]


def slow_upload_band(bits, gain_to_noise, phi, time, energy, max_power):
    """Least band for an upload of this time and energy, by bisection; inf where no band will do."""
    power = min(max_power, energy / time)
    if power <= 0.0:
        return math.inf
    widest = power * gain_to_noise / phi
    if widest * math.log2(1.0 + phi) * time < bits:
        return math.inf
    low, high = 0.0, widest
    for _ in range(100):
        middle = 0.5 * (low + high)
        enough = (
            middle > 0.0
            and middle * math.log1p(power * gain_to_noise / middle) / math.log(2.0) * time >= bits
        )
        low, high = (low, middle) if enough else (middle, high)
    return high


def slow_least_band(row, phi, kappa, deadline, points=400, passes=8):
    """Least band of one UE for a deadline: computing time on a grid that is refined around the best
    point.
    """
    cycles, bits, gain_to_noise, max_energy, max_power, min_frequency, max_frequency = row
    low, high = cycles / max_frequency, min(cycles / min_frequency, deadline)
    best, argument = math.inf, None
    for _ in range(passes):
        ratio = (high / low) ** (1.0 / points)
        for step in range(points + 1):
            time = low * ratio**step
            energy = max_energy - kappa * cycles * (cycles / time) ** 2
            if energy > 0.0 and time < deadline:
                band = slow_upload_band(
                    bits, gain_to_noise, phi, deadline - time, energy, max_power
                )
                if band < best:
                    best, argument = band, time
        if argument is None:
            return math.inf
        low, high = max(low, argument / ratio**2), min(high, argument * ratio**2)
    return best


def conic_time(task, total_band, time_unit):
    """Least T by cvxpy and Clarabel: the same problem without logarithms, exact up to a quadrature
    error of 1e-12.

    In computing time s, upload time t, spectral efficiency y and band B:

        s + t <= T,   (t B y)^(1/3) >= (Z ln 2)^(1/3),   kappa W^3/s^2 + eta c(y) <= E,   eta c(y)
        <= P t

    and c(y) = (exp(y) - 1)/y is the mean of exp(u y) over 0 < u < 1, a sum of exponentials by
    Gauss's rule.
    """
    import cvxpy as cp

    nodes, weights = np.polynomial.legendre.leggauss(16)
    nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    num_ue = len(task.cycles)
    eta = task.bits * math.log(2.0) / task.gain_to_noise
    alone = task.cycles * np.sqrt(
        task.kappa * task.cycles / task.max_energy
    )  # computing takes all energy
    band_unit = total_band / num_ue
    y_unit = np.log1p(task.max_energy / eta)
    compute, upload, y, band = (
        cp.Variable(num_ue) for _ in range(4)
    )  # in units of alone, time_unit, y_unit, band_unit
    total = cp.Variable()
    log_share = np.log(eta / task.max_energy)[:, None] + np.log(weights)[None, :]
    many_y = cp.reshape(y, (num_ue, 1), order="C") @ np.ones((1, len(nodes)))
    send = cp.sum(cp.exp(cp.multiply(y_unit[:, None] * nodes[None, :], many_y) + log_share), axis=1)
    volume = task.bits * math.log(2.0) / (time_unit * band_unit * y_unit)
    problem = cp.Problem(
        cp.Minimize(total),
        [
            cp.multiply(alone / time_unit, compute) + upload <= total,
            *(
                cp.geo_mean(cp.hstack([upload[i], band[i], y[i]])) >= volume[i] ** (1.0 / 3.0)
                for i in range(num_ue)
            ),
            cp.power(compute, -2) + send <= 1.0,
            send <= cp.multiply(task.max_power * time_unit / task.max_energy, upload),
            cp.multiply(y_unit, y) >= math.log1p(task.phi),
            compute >= task.cycles / task.max_frequency / alone,
            compute <= task.cycles / task.min_frequency / alone,
            cp.sum(band) <= num_ue,
        ],
    )
    problem.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    return float(total.value) * time_unit
