"""Time and energy of a round: radio, computing, and the slowest UE, Section II-C of the paper."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from autofl.network.cell import Cell
from autofl.network.links import DECODE_SLACK
from autofl.network.plan import Plan
from autofl.units import Array, BoolArray, IntArray

Outage = Literal["skip", "wait"]


@dataclass(frozen=True)
class Cost:
    """Time [s] and energy [J] of one activity, shape (..., num_ue)."""

    time: Array
    energy: Array


@dataclass(frozen=True)
class RoundCost:
    """What a round costs each UE, shape (..., num_ue), and how long it takes, shape (...)."""

    upload_time: Array  # t^com [s], 0 for a UE that does not send
    compute_time: Array  # t^cmp [s], 0 for a UE that does not send
    energy: Array  # e_k^i [J]
    time: Array  # T_k^round [s]
    downlink_time: Array = field(
        default_factory=lambda: np.array(0.0)
    )  # t_down [s], part of time, shape (...)
    overhead: Array = field(
        default_factory=lambda: np.array(0.0)
    )  # T_over [s], part of time, shape (...)

    PER_UE = ("upload_time", "compute_time", "energy")


def snr(cell: Cell, gain: Array, tx_power: Array) -> Array:
    """SNR at the base station, xi_i = p_i g_i / (N0 B), Section II-C.

    Args:
        cell: noise_psd N0 [W/Hz], bandwidth B [Hz].
        gain: channel gain g_i = h_i r_i^-kappa, shape (..., num_ue).
        tx_power: p_i [W], shape (..., num_ue).
    Returns:
        xi_i, power ratio, shape (..., num_ue).
    """
    return tx_power * gain / cell.noise_power


def decoded(cell: Cell, gain: Array, tx_power: Array) -> BoolArray:
    """Whether an update is decoded, xi_i >= phi or the SNR of the lowest level of the rate law,
    shape (..., num_ue).
    """
    return np.asarray(snr(cell, gain, tx_power) >= cell.least_snr * (1.0 - DECODE_SLACK))


def tries_needed(cell: Cell, gain: Array, known: Array, tx_power: Array) -> Array:
    """How often an update must be sent whose rate was chosen for another gain, whole numbers >= 1,
    shape (..., num_ue).

    Copies are combined before they are decoded (Chase 1985), and the SNR of n copies is n times
    that of one: it takes the least n with n xi >= xi', xi' being the SNR that the chosen rate
    needs. Infinite at gain 0.

    Args:
        gain: g_i, the true one.
        known: what the rate was chosen for.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = cell.link.needed(snr(cell, known, tx_power)) / snr(cell, gain, tx_power)
    return np.ceil(
        np.maximum(np.nan_to_num(ratio, nan=np.inf, posinf=np.inf) * (1.0 - DECODE_SLACK), 1.0)
    )


def arrives(cell: Cell, gain: Array, known: Array, tx_power: Array) -> BoolArray:
    """Whether an update whose rate was chosen for `known` is decoded after at most cell.tries
    transmissions.
    """
    return np.asarray(tries_needed(cell, gain, known, tx_power) <= cell.tries)


def rate(cell: Cell, gain: Array, tx_power: Array) -> Array:
    """Uplink rate r_i = B log2(1 + xi_i) [bit/s], Eq. (9), or that of another rate law, shape (...,
    num_ue).
    """
    return cell.bandwidth * cell.link.efficiency(snr(cell, gain, tx_power)) / np.log(2.0)


def upload_cost(cell: Cell, gain: Array, tx_power: Array) -> Cost:
    """Time and energy for sending one update, Eq. (10) and (12); infinite time at power 0.

        t^com = Z / r_i,    e^com = (p_i/eta + P_c) t^com

    Args:
        cell: update_bits Z [bit], bandwidth B [Hz], noise_psd N0 [W/Hz], link; eta, P_c [W].
        gain: g_i, shape (..., num_ue).
        tx_power: p_i [W], shape (..., num_ue).
    Note:
        The paper has eta = 1 and P_c = 0. Computing draws no P_c: its energy is that of the CPU
        alone.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        time = cell.update_bits / rate(cell, gain, tx_power)
        energy = np.where(tx_power > 0.0, drawn_power(cell, tx_power) * time, 0.0)
    return Cost(time=time, energy=energy)


def drawn_power(cell: Cell, tx_power: Array) -> Array:
    """What sending at this power takes from the battery, p/eta + P_c [W]."""
    return tx_power / cell.pa_efficiency + cell.circuit_power


def compute_cost(cell: Cell, num_samples: Array | IntArray) -> Cost:
    """Time and energy for computing an update, Eq. (11) and (12).

        t^cmp = tau C_i d_i / vartheta_i,    e^cmp = (varsigma/2) tau C_i d_i vartheta_i^2

    Args:
        cell: cycles_per_sample C_i, cpu_frequency vartheta_i [cycle/s], local_steps tau,
            capacitance varsigma.
        num_samples: d_i of one local step, shape (..., num_ue); each step works on d_i samples of
            its own.
    """
    processed = cell.local_steps * num_samples
    return Cost(
        time=cell.cycles_per_sample * processed / cell.cpu_frequency,
        energy=cell.energy_per_sample * processed,
    )


def longest_upload(cell: Cell) -> Array:
    """Time of the slowest upload that can be decoded, Z / (B log2(1 + phi)) [s], shape (num_ue,)."""
    return (
        cell.update_bits
        * np.log(2.0)
        / (cell.bandwidth * cell.link.efficiency(np.asarray(cell.least_snr)))
    )


def listening_time(cell: Cell, gain: Array, takes_part: BoolArray | None = None) -> Array:
    """Time for which a UE listens to the downlink [s], shape (..., num_ue); 0 where it is free or
    nobody takes part.

        broadcast:  Z_down / (B log2(1 + P_bs g_min / (N0 B))),    g_min = min_i g_i of those that
            take part
        unicast:    Z_down / (B log2(1 + P_bs g_i / (N0 B)))

    with B = sum_i B_i, the whole band of the round, unless the cell says otherwise, N0 at the UE,
    and the rate law of the cell. Below the lowest level of a staircase, blocks are repeated.

    Args:
        cell: the selected UEs; downlink_power P_bs [W], downlink_bits Z_down [bit], bandwidth B_i
            [Hz].
        gain: g_i, shape (..., num_ue); the same in both directions.
        takes_part: who is sent the model, shape (..., num_ue); by default all.
    """
    part = np.ones(np.shape(gain), np.bool_) if takes_part is None else takes_part
    if cell.downlink_power is None:
        return np.zeros(np.shape(gain))
    served = np.where(part, gain, np.inf)
    weakest = (
        served
        if cell.downlink_mode == "unicast"
        else served.min(axis=-1, initial=np.inf, keepdims=True)
    )
    band = (
        cell.bandwidth.sum(axis=-1, keepdims=True)
        if cell.downlink_bandwidth is None
        else cell.downlink_bandwidth
    )
    noise_psd = cell.noise_psd if cell.downlink_noise_psd is None else cell.downlink_noise_psd
    with np.errstate(divide="ignore"):
        spectral = cell.link.repeated(cell.downlink_power * weakest / (noise_psd * band)) / np.log(
            2.0
        )
        time = np.asarray(cell.downlink_bits / (band * spectral))
    return np.broadcast_to(np.where(np.isinf(weakest), 0.0, time), np.shape(gain))


def downlink_time(cell: Cell, gain: Array, takes_part: BoolArray | None = None) -> Array:
    """Time of sending the model down, once for all or to one UE after another, t_down [s], shape
    (...).

    0 where the downlink is free or nobody takes part; arguments as for `listening_time`.
    """
    time = listening_time(cell, gain, takes_part)
    if cell.downlink_mode == "broadcast":
        return np.asarray(time.max(axis=-1, initial=0.0))
    return np.asarray(np.where(True if takes_part is None else takes_part, time, 0.0).sum(axis=-1))


def fixed_time(cell: Cell, gain: Array, takes_part: BoolArray | None = None) -> Array:
    """The part of a round's time that no UE's samples, power or frequency change: T_over + t_down
    [s], shape (...).

    A planner that weighs progress against time adds it to the slowest UE's time; arguments as for
    `downlink_time`.
    """
    return cell.overhead + downlink_time(cell, gain, takes_part)


def listening_energy(cell: Cell, gain: Array, takes_part: BoolArray | None = None) -> Array:
    """P_rx times `listening_time` [J], shape (..., num_ue)."""
    return cell.receive_power * listening_time(cell, gain, takes_part)


def round_cost(
    cell: Cell, gain: Array, plan: Plan, outage: Outage = "skip", known: Array | None = None
) -> RoundCost:
    """Cost of a round, Eq. (12) and (13), and what the paper leaves out: T_over and t_down, both 0
    by default.

        T_k = T_over + t_down + max_i (t^cmp + n t^com) over the UEs that send,    e_k^i = e^cmp + n
        e^com + e^rx

    n = 1 where the gains are known. A UE with no samples or no power takes no part and costs
    nothing (Algorithm 2, line
    8: the base station knows the channel). Listening costs a UE that takes part e^rx = P_rx t_down,
        0 by default.

    Args:
        cell: the selected UEs. The downlink has its bands, even where the plan divides them
            otherwise.
        gain: g_i, shape (..., num_ue).
        plan: every decision; frequency, band, bits and local steps take the place of the cell's.
        outage: "wait" makes the base station wait `longest_upload` for a selected UE that does not
            send.
        known: the gains for which rates were chosen, by default the true ones. Where the two
            differ, an update is sent until it is decoded, at most cell.tries times.
    Note:
        A round in which nobody sends costs the longest upload too, under both settings: time passes
        until the base station can tell that nothing is coming. The paper does not treat this case.
        Nothing is sent down in it.
    """
    sends = (plan.num_samples > 0) & (plan.tx_power > 0.0)
    believed = gain if known is None else known
    down = downlink_time(cell, believed, sends)
    listening = listening_energy(cell, believed, sends)
    cell = plan.applied(cell)
    upload = upload_cost(cell, believed, plan.tx_power)
    if known is not None and known is not gain:
        copies = np.minimum(tries_needed(cell, gain, known, plan.tx_power), cell.tries)
        upload = Cost(copies * upload.time, copies * upload.energy)
    compute = compute_cost(cell, plan.num_samples)
    upload_time, compute_time, energy = np.broadcast_arrays(
        np.where(sends, upload.time, 0.0),
        np.where(sends, compute.time, 0.0),
        np.where(sends, upload.energy + compute.energy + listening, 0.0),
    )
    waits = ~sends if outage == "wait" else ~sends & ~sends.any(axis=-1, keepdims=True)
    waiting = np.where(waits, longest_upload(cell), 0.0)
    slowest = np.maximum(upload_time + compute_time, waiting).max(axis=-1, initial=0.0)
    return RoundCost(
        upload_time=upload_time,
        compute_time=compute_time,
        energy=energy,
        time=cell.overhead + down + slowest,
        downlink_time=np.broadcast_to(down, slowest.shape),
        overhead=np.full(slowest.shape, cell.overhead),
    )
