"""Random cells with every rate law, amplifier and circuits, and the best plan on dense grids,
without our code.
"""

import math

import numpy as np

from autofl.network import Cell, Law

KINDS = ("shannon", "gap", "ceiling", "nr-64qam", "nr-256qam", "table")
QPSK_TO_256QAM = (
    [(2, r) for r in (120, 193, 308, 449, 602)]
    + [(4, r) for r in (378, 434, 490, 553, 616, 658)]
    + [(6, r) for r in (466, 517, 567, 616, 666, 719, 772, 822, 873)]
    + [(8, r) for r in (682.5, 711, 754, 797, 841, 885, 916.5, 948)]
)


def random_radio(seed, num_ue=None):
    """A cell of 1 to 5 UEs and their gains; the laws take turns."""
    rng = np.random.default_rng((13, seed))
    kind = KINDS[seed % len(KINDS)]
    num_ue = num_ue or int(rng.integers(1, 6))
    link = Law()
    if kind in ("gap", "ceiling"):
        link = Law(
            gap=10.0 ** rng.uniform(0.0, 0.6),
            ceiling=math.inf if kind == "gap" else rng.uniform(1.0, 8.0),
        )
    elif kind.startswith("nr"):
        table = (
            QPSK_TO_256QAM
            if kind == "nr-256qam"
            else [pair for pair in QPSK_TO_256QAM if pair[0] < 8]
        )
        gap = 10.0 ** rng.uniform(0.0, 0.4)
        link = Law(
            levels=tuple(
                (q * r / 1024 * math.log(2.0), gap * (2.0 ** (q * r / 1024) - 1.0))
                for q, r in table
            )
        )
    elif kind == "table":
        steps = np.cumsum(rng.uniform(0.05, 1.0, (int(rng.integers(1, 9)), 2)), axis=0)
        link = Law(levels=tuple((y, 10.0 ** (x - 1.0)) for y, x in steps.tolist()))
    cycles = rng.uniform(0.5e5, 2e5, num_ue)
    distance = rng.uniform(20.0, 300.0, num_ue)
    gain = rng.exponential(1.0, num_ue) * distance**-3.8
    max_power = 10.0 ** rng.uniform(-2.5, -0.7, num_ue)
    circuit_power = 0.0 if rng.random() < 0.25 else float(10.0 ** rng.uniform(-3.5, -1.0))
    eta = float(rng.uniform(0.2, 1.0))
    bandwidth = 10.0 ** rng.uniform(5.5, 6.5, num_ue)
    bits, frequency = 10.0 ** rng.uniform(4.0, 6.3), rng.uniform(0.5e9, 2e9, num_ue)
    computing = 5e-28 * cycles * 20.0 * frequency**2
    sending = (max_power / eta + circuit_power) * bits / (bandwidth * 3.0)
    cell = Cell(
        distance=distance,
        cycles_per_sample=cycles,
        cpu_frequency=frequency,
        min_cpu_frequency=frequency * rng.uniform(0.05, 0.5),
        data_size=rng.integers(2, 100, num_ue),
        max_energy=(computing + sending) * 10.0 ** rng.uniform(-1.0, 0.7, num_ue),
        max_power=max_power,
        bandwidth=bandwidth,
        update_bits=bits,
        noise_psd=10.0 ** (-20.4 + rng.uniform(0.0, 1.0)),
        snr_threshold=float(10.0 ** rng.uniform(-1.0, 2.0)),
        pa_efficiency=eta,
        circuit_power=circuit_power,
        link=link,
    )
    return cell, gain


def lowest_snr(cell):
    return cell.link.levels[0][1] if cell.link.levels else cell.snr_threshold


def bits_per_hertz(cell, snr):
    """Spectral efficiency, by the definitions; 0 where nothing is decoded."""
    snr = np.asarray(snr, dtype=np.float64)
    if cell.link.levels:
        best = np.zeros(snr.shape)
        for y, needed in cell.link.levels:
            best[snr >= needed * (1.0 - 1e-11)] = y / math.log(2.0)
        return best
    rate = np.minimum(np.log2(1.0 + snr / cell.link.gap), cell.link.ceiling / math.log(2.0))
    return np.where(snr >= cell.snr_threshold * (1.0 - 1e-11), rate, 0.0)


def snr_grid(cell, most, points):
    """SNRs to try up to the most there can be; those of the levels, since more than they need gains
    nothing.
    """
    if cell.link.levels:
        return np.array([snr for _, snr in cell.link.levels if snr <= most * (1.0 + 1e-11)])
    least = cell.snr_threshold
    return (
        np.geomspace(least, most, points)
        if most > least
        else np.array([least] if most >= least else [])
    )


def best_of_p3_p4(cell, gain, i, wanted, spacing=2e-4, slack=0.0):
    """Most samples, and then the least time, over a dense grid of powers; (0, inf) where nothing
    goes.
    """
    power = np.append(
        cell.max_power[i] * np.exp(-spacing * np.arange(int(25.0 / spacing)))[::-1],
        cell.max_power[i],
    )
    noise = cell.noise_psd * cell.bandwidth[i]
    rate = cell.bandwidth[i] * bits_per_hertz(cell, power * gain[i] / noise)
    power, rate = power[rate > 0.0], rate[rate > 0.0]
    time = cell.update_bits[i] / rate
    energy = (power / cell.pa_efficiency + cell.circuit_power) * time
    sample = 0.5 * cell.capacitance * cell.cycles_per_sample[i] * cell.cpu_frequency[i] ** 2
    budget = cell.max_energy[i] * (1.0 + slack)
    samples = np.floor(
        np.minimum((budget - energy) / sample * (1.0 + 1e-9) + 1e-9, min(wanted, cell.data_size[i]))
    )
    if not len(samples) or samples.max() < 3:
        return 0, math.inf
    best = samples.max()
    return int(best), float(
        time[samples >= best].min() + best * cell.cycles_per_sample[i] / cell.cpu_frequency[i]
    )


def one_ue(cell, gain, i, work):
    """Numbers of one UE: W, s_min, s_max, kappa W^3, snr per watt and hertz."""
    cube = 0.5 * cell.capacitance * work**3
    return (
        work / cell.cpu_frequency[i],
        work / cell.min_cpu_frequency[i],
        cube,
        gain[i] / cell.noise_psd,
    )


def band_on_a_grid(cell, gain, i, work, deadline, points=(100, 400), passes=4):
    """Least band of a UE for a deadline over grids of computing time and SNR, refined around the
    best; inf for none.
    """
    quickest, slowest, cube, a = one_ue(cell, gain, i, work)
    if quickest >= deadline:
        return math.inf
    low, high = quickest, min(slowest, deadline)
    grid = snr_grid(cell, a * cell.max_energy[i] * 1e3 / cell.update_bits[i] + 1e6, points[1])
    best = math.inf
    for _ in range(passes):
        s = np.linspace(low, high, points[0])[:, None]
        snr, rate = grid[None, :], bits_per_hertz(cell, grid)[None, :]
        radiated = cell.update_bits[i] * snr / (a * rate)  # p t
        left = cell.max_energy[i] - cube / s**2 - radiated / cell.pa_efficiency
        t = np.broadcast_to(deadline - s, left.shape)
        if cell.circuit_power > 0.0:
            t = np.minimum(t, left / cell.circuit_power)
        fine = (left >= 0.0) & (t > 0.0) & (t * cell.max_power[i] >= radiated * (1.0 - 1e-12))
        band = np.where(fine, cell.update_bits[i] / (np.where(fine, t, 1.0) * rate), np.inf)
        if not np.isfinite(band).any():
            return best
        row, column = np.unravel_index(band.argmin(), band.shape)
        best = min(best, float(band[row, column]))
        step = (high - low) / (points[0] - 1)
        low, high = (
            max(quickest, s[row, 0] - 2 * step),
            min(slowest, deadline, s[row, 0] + 2 * step),
        )
        if not cell.link.levels and len(grid) > 1:
            ratio = grid[1] / grid[0]
            grid = np.geomspace(
                max(grid[column] / ratio**2, cell.snr_threshold), grid[column] * ratio**2, points[1]
            )
    return best


def in_a_band(cell, gain, i, work, band, deadline=None, points=40_000):
    """Least time of a UE in a band, or least energy within a deadline, over a grid of SNRs; inf for
    none.
    """
    quickest, slowest, cube, a = one_ue(cell, gain, i, work)
    snr = snr_grid(cell, cell.max_power[i] * a / band, points)
    if not len(snr):
        return math.inf
    t = cell.update_bits[i] / (band * bits_per_hertz(cell, snr))
    sending = (snr * band / a / cell.pa_efficiency + cell.circuit_power) * t
    if deadline is None:
        left = cell.max_energy[i] - sending
        s = np.maximum(np.sqrt(cube / np.where(left > 0.0, left, np.nan)), quickest)
        return float(np.nanmin(np.where(s <= slowest, s + t, np.inf), initial=math.inf))
    s = np.minimum(deadline - t, slowest)
    fine = s >= quickest * (1.0 - 1e-12)
    energy = np.where(fine, cube / np.where(fine, s, 1.0) ** 2 + sending, np.inf)
    return float(np.where(energy <= cell.max_energy[i] * (1.0 + 1e-9), energy, np.inf).min())


def costs(cell, gain, i, work, band, power, frequency):
    """SNR, time and energy of a decision, by the definitions."""
    snr = power * gain[i] / (cell.noise_psd * band)
    t = cell.update_bits[i] / (band * bits_per_hertz(cell, snr))
    energy = (
        0.5 * cell.capacitance * work * frequency**2
        + (power / cell.pa_efficiency + cell.circuit_power) * t
    )
    return float(snr), float(work / frequency + t), float(energy)


def bisected(holds, low, high, steps=200):
    """The largest value up to which `holds` is true, for all UEs at once."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        fine = holds(middle)
        low, high = np.where(fine, middle, low), np.where(fine, high, middle)
    return low


def best_between(value, low, high, steps=300):
    """The greatest value of a function that first grows and then falls, by cutting off a third of
    the interval.
    """
    for _ in range(steps):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        lower = value(left) < value(right)
        low, high = np.where(lower, left, low), np.where(lower, high, right)
    return np.maximum(value(low), value(high))


def efficiency_of(energy, eta):
    """The y with eta (exp(y) - 1)/y = energy, by bisection; 0 where the energy is too little for
    any.
    """
    return bisected(
        lambda y: eta * np.expm1(y) / np.maximum(y, 1e-300) <= energy, np.zeros_like(energy), 700.0
    )


def least_band_of(task, deadline):
    """Least bands for a deadline, level by level or over all upload times; inf where there is none."""
    slowest, eta = task.cycles / task.min_frequency, task.bits * math.log(2.0) / task.gain_to_noise
    quickest = task.cycles / task.max_frequency

    def left(t):
        """Energy for the amplifier."""
        s = np.minimum(deadline - t, slowest)
        return task.max_energy - task.kappa * task.cycles**3 / s**2 - task.circuit_power * t

    zero, latest = np.zeros(np.broadcast_shapes(np.shape(deadline), eta.shape)), deadline - quickest
    best = zero  # the greatest t y
    with np.errstate(all="ignore"):
        for y, snr in task.levels:
            t = bisected(lambda t, a=eta * snr / y: left(t) >= a, zero, latest)
            best = np.where(
                (t > 0.0) & (task.max_power * t >= eta * snr / y), np.maximum(best, t * y), best
            )
        if not task.levels:
            lowest = eta * task.phi / math.log1p(task.phi)
            longest = bisected(lambda t: left(t) >= lowest, zero, latest)
            shortest = lowest / task.max_power

            def carried(t):
                y = efficiency_of(np.minimum(left(t), task.max_power * t), eta)
                return t * np.minimum(y, task.ceiling)

            carried_most = best_between(
                carried, np.broadcast_to(shortest, zero.shape), np.maximum(longest, shortest)
            )
            best = np.where(longest > shortest, carried_most, best)
        return np.where(best > 0.0, task.bits * math.log(2.0) / best, np.inf)


def least_energy_of(task, band, deadline):
    """Least energies in given bands within a deadline, level by level or over all efficiencies; inf
    for none.
    """
    slowest, quickest = task.cycles / task.min_frequency, task.cycles / task.max_frequency
    upload = task.bits * math.log(2.0) / band
    most_snr = task.max_power * task.gain_to_noise / band

    def energy(y, snr):
        t = upload / y
        s = np.minimum(deadline - t, slowest)
        sending = (snr * band / task.gain_to_noise + task.circuit_power) * t
        return np.where(s >= quickest, task.kappa * task.cycles**3 / s**2 + sending, np.inf)

    with np.errstate(all="ignore"):
        best = np.full(most_snr.shape, np.inf)
        for y, snr in task.levels:
            best = np.where(snr <= most_snr, np.minimum(best, energy(y, snr)), best)
        if not task.levels:
            low = np.maximum(
                math.log1p(task.phi), upload / np.maximum(deadline - quickest, 0.0) * (1.0 + 1e-13)
            )
            high = np.minimum(np.log1p(most_snr), task.ceiling)
            least = -best_between(lambda y: -energy(y, np.expm1(y)), low, np.maximum(high, low))
            best = np.where(low <= high, least, best)
        return np.where(best <= task.max_energy, best, np.inf)
