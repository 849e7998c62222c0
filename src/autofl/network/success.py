"""How likely an update is to arrive, as the paper prints it; a channel knows its own law
(`channels`).
"""

import numpy as np

from autofl.units import Array


def printed_success_probability(
    num_ue: int, noise_psd: float, snr_threshold: float, tx_power: Array
) -> Array:
    """Eq. (8) as printed, q_i = (1/n) / (1 + N0 phi / p_i): about 1/n for every sensible power."""
    return (1.0 / num_ue) / (1.0 + noise_psd * snr_threshold / np.asarray(tx_power))
