"""Log-distance path loss with an intercept, for what TR 38.901 has no scenario for."""

import math

import numpy as np

from autofl.channels.tr38901 import Scenario, Site
from autofl.units import Array


def log_distance(exponent: float, intercept_db: float | None = None) -> Scenario:
    """PL = a + 10 n log10(d_3D / 1 m) [dB]; one law for all UEs, none of which has a line of sight.

    Args:
        exponent: n.
        intercept_db: a, the loss at 1 m; by default free space, 32.4 + 20 log10(f_c / GHz) (3GPP TR
            38.901, 7.4.1).
    """

    def loss(site: Site, distance: Array, antennas: Array) -> Array:
        free_space = 32.4 + 20.0 * math.log10(site.carrier_ghz)
        return (free_space if intercept_db is None else intercept_db) + 10.0 * exponent * np.log10(
            antennas
        )

    return Scenario(
        label="log-distance",
        los_loss=loss,
        nlos_loss=loss,
        los_chance=lambda site, distance: np.zeros(np.shape(distance)),
        shadowing_db=(8.0, 8.0),
        shadow_distance=(50.0, 50.0),
        los_distance=50.0,
        k_factor_db=9.0,
        heights=(1.5, 1.5),
        reach=(1.0, 1e6),
        carriers=(1e6, 1e12),
        bs_heights=(0.0, 1e5),
        ue_heights=(0.0, 1e5),
    )
