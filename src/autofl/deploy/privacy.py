"""Differential privacy of a device: it clips its update and adds noise before anything is sent.

Flower has both parts: LocalDpMod, which wraps the device's answer, and the accountant.
"""

import math

from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)

ONE_DELTA = 1e-5
"""LocalDpMod asks for the epsilon and delta of one release and makes a deviation of them; any delta
will do.
"""


def local_noise(clip: float, noise_multiplier: float) -> LocalDpMod:
    """Clip w_i - w to the norm `clip`, then add noise of deviation noise_multiplier * clip to each
    weight.

    The mod's deviation is sensitivity sqrt(2 ln(1.25/delta)) / epsilon: this epsilon makes it the
    sensitivity.
    """
    one = math.sqrt(2.0 * math.log(1.25 / ONE_DELTA))
    return LocalDpMod(
        clipping_norm=clip, sensitivity=noise_multiplier * clip, epsilon=one, delta=ONE_DELTA
    )


def spent(noise_multiplier: float, num_releases: int, delta: float) -> float:
    """epsilon after `num_releases` noisy updates of one device, by Renyi accounting.

    Neighbours differ in all data of the device. Two clipped updates are at most 2 * clip apart, so
    the noise is noise_multiplier / 2 of the sensitivity. The server selects and knows whom, so
    selection amplifies nothing.
    """
    if num_releases == 0:
        return 0.0
    config = PrivacyConfig(
        target_delta=delta,
        population_size=1,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,
    )
    accountant = RdpAccountant(config)
    accountant.compose(
        GaussianPrivacyEvent(noise_multiplier / 2.0, sample_size=1, population_size=1), num_releases
    )
    return float(accountant.get_epsilon(delta))
