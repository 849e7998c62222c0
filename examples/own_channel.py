"""A channel of one's own: Nakagami-m fading, whose power gain is Gamma distributed.

    python examples/own_channel.py

A fading law is a function draw(rng, shape); with its survival function P(h >= x), success probabilities are exact.
"""

import sys

import numpy as np
from scipy.special import gammaincc

import autofl
from autofl.network import OwnFading, success_probability


def nakagami(m: float) -> OwnFading:
    """Power gain h ~ Gamma(m, 1/m): mean 1, less spread the larger m."""
    return OwnFading(
        lambda rng, shape: rng.gamma(m, 1.0 / m, shape),
        lambda gain: gammaincc(m, m * np.asarray(gain)),
    )


def main(rounds: int = 20) -> dict[float, float]:
    settings = autofl.load_settings(overrides=[f"stop.rounds={rounds}", "cell.distance={disc=300}"])
    decoded = {}
    for m in (0.5, 1.0, 4.0):
        simulation = autofl.build_simulation(settings, fading=nakagami(m))
        expected = success_probability(simulation.cell, nakagami(m), simulation.cell.max_power).mean()
        share = np.mean([record.decoded.mean() for record, _ in autofl.simulate(simulation) if record.round])
        decoded[m] = float(share)
        print(f"m = {m}: {100 * share:.0f} % of updates decoded, {100 * expected:.0f} % expected at P_max")
    return decoded


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
