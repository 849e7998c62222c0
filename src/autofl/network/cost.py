"""Time and energy of a round: radio, computing, and the slowest UE, Section II-C of the paper."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from autofl.network.cell import Cell
from autofl.network.plan import Plan
from autofl.units import Array, BoolArray, IntArray

Outage = Literal["skip", "wait"]

DECODE_SLACK = 1e-12
"""Relative slack of the decoding test: a power computed to reach phi exactly may fall short by rounding."""


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
    """Whether an update is decoded, xi_i >= phi, shape (..., num_ue)."""
    return np.asarray(snr(cell, gain, tx_power) >= cell.snr_threshold * (1.0 - DECODE_SLACK))


def rate(cell: Cell, gain: Array, tx_power: Array) -> Array:
    """Uplink rate r_i = B log2(1 + xi_i) [bit/s], Eq. (9), shape (..., num_ue)."""
    # log1p keeps tiny SNRs from rounding to 0
    return cell.bandwidth * np.log1p(snr(cell, gain, tx_power)) / np.log(2.0)


def upload_cost(cell: Cell, gain: Array, tx_power: Array) -> Cost:
    """Time and energy for sending one update, Eq. (10) and (12); infinite time at power 0.

        t^com = Z / r_i,    e^com = p_i t^com

    Args:
        cell: update_bits Z [bit], bandwidth B [Hz], noise_psd N0 [W/Hz].
        gain: g_i, shape (..., num_ue).
        tx_power: p_i [W], shape (..., num_ue).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        time = cell.update_bits / rate(cell, gain, tx_power)
        energy = np.where(tx_power > 0.0, tx_power * time, 0.0)
    return Cost(time=time, energy=energy)


def compute_cost(cell: Cell, num_samples: Array | IntArray) -> Cost:
    """Time and energy for computing an update, Eq. (11) and (12).

        t^cmp = tau C_i d_i / vartheta_i,    e^cmp = (varsigma/2) tau C_i d_i vartheta_i^2

    Args:
        cell: cycles_per_sample C_i, cpu_frequency vartheta_i [cycle/s], local_steps tau, capacitance varsigma.
        num_samples: d_i of one local step, shape (..., num_ue); each step works on d_i samples of its own.
    """
    processed = cell.local_steps * num_samples
    return Cost(
        time=cell.cycles_per_sample * processed / cell.cpu_frequency,
        energy=cell.energy_per_sample * processed,
    )


def longest_upload(cell: Cell) -> Array:
    """Time of the slowest upload that can be decoded, Z / (B log2(1 + phi)) [s], shape (num_ue,)."""
    return cell.update_bits * np.log(2.0) / (cell.bandwidth * np.log1p(cell.snr_threshold))


def round_cost(cell: Cell, gain: Array, plan: Plan, outage: Outage = "skip") -> RoundCost:
    """Cost of a round, Eq. (12) and (13).

        T_k = max_i (t^cmp + t^com) over the UEs that send,    e_k^i = e^cmp + e^com

    A UE with no samples or no power takes no part and costs nothing (Algorithm 2, line 8: the base station knows
    the channel).

    Args:
        cell: the selected UEs.
        gain: g_i, shape (..., num_ue).
        plan: every decision; frequency, band, bits and local steps take the place of the cell's.
        outage: "wait" makes the base station wait `longest_upload` for a selected UE that does not send.
    Note:
        A round in which nobody sends costs the longest upload too, under both settings: time passes until the
        base station can know that nothing comes. The paper does not treat this case.
    """
    cell = plan.applied(cell)
    sends = (plan.num_samples > 0) & (plan.tx_power > 0.0)
    upload = upload_cost(cell, gain, plan.tx_power)
    compute = compute_cost(cell, plan.num_samples)
    upload_time, compute_time, energy = np.broadcast_arrays(
        np.where(sends, upload.time, 0.0),
        np.where(sends, compute.time, 0.0),
        np.where(sends, upload.energy + compute.energy, 0.0),
    )
    waits = ~sends if outage == "wait" else ~sends & ~sends.any(axis=-1, keepdims=True)
    waiting = np.where(waits, longest_upload(cell), 0.0)
    return RoundCost(
        upload_time=upload_time,
        compute_time=compute_time,
        energy=energy,
        time=np.maximum(upload_time + compute_time, waiting).max(axis=-1, initial=0.0),
    )
