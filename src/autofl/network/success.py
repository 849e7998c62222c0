"""How likely an update is to arrive: selected and decoded."""

import numpy as np

from autofl.network.cell import Cell, path_gain
from autofl.network.fading import Fading
from autofl.units import Array


def success_probability(cell: Cell, fading: Fading, tx_power: Array, select_probability: float = 1.0) -> Array:
    """Probability that an update arrives, exact for the fading law, Eq. (8).

        q_i = P(selected) P(xi_i >= phi),    xi_i >= phi when h_i >= phi N0 B r_i^kappa / p_i

    Args:
        cell: snr_threshold phi, noise_psd N0, bandwidth B, distance r_i, path_loss_exponent kappa.
        fading: law of h_i.
        tx_power: p_i [W], shape (..., num_ue).
        select_probability: P(s_i = 1), |A_k| / n under uniform selection.
    Note:
        Eq. (8) as printed forgets path loss; see `printed_success_probability`.
    """
    with np.errstate(divide="ignore"):
        least_gain = cell.snr_threshold * cell.noise_power / (np.asarray(tx_power) * path_gain(cell))
    return select_probability * fading.survival(least_gain)


def printed_success_probability(num_ue: int, noise_psd: float, snr_threshold: float, tx_power: Array) -> Array:
    """Eq. (8) as printed, q_i = (1/n) / (1 + N0 phi / p_i): about 1/n for every sensible power."""
    return (1.0 / num_ue) / (1.0 + noise_psd * snr_threshold / np.asarray(tx_power))
