"""Pilots for the joint planner that follow a law exactly."""

import numpy as np

import autofl
from autofl.compressors.entropy import Entropy
from autofl.forecast.pilot import JOINT_DESIGN
from autofl.forecast.pilot_files import Pilot, problem_of, write_pilots

LAW = (6.0, 12.0, 1500.0, 3.0)
"""c, a, b and q of K = c + (a + b/(d m))/tau + q omega/m, rounds to u = 1 below."""
HIGHEST, SPEED = 0.97, 2.5
"""Accuracy after u K rounds is HIGHEST (1 - exp(-SPEED u))."""


def rounds_to(target: float, K: float) -> float:
    return -np.log1p(-target / HIGHEST) / SPEED * K


def write(path, *overrides, law=LAW, num_rounds=400):
    """A file of pilots of these settings, each evaluated in every round."""
    problem = problem_of(
        autofl.load_settings(overrides=["arm=autofl-j", *overrides]).resolved().table()
    )
    rates = np.array(Entropy().rates())
    pilots = []
    for point in JOINT_DESIGN:
        if point.away:
            continue
        omega = float(np.interp(point.bits, *rates[rates[:, 0].argsort()].T))
        d, m, tau = point.num_samples, point.num_selected, point.local_steps
        K = law[0] + (law[1] + law[2] / (d * m)) / tau + law[3] * omega / m
        k = np.arange(num_rounds)
        accuracy = HIGHEST * (1.0 - np.exp(-SPEED * k / K))
        pilots.append(
            Pilot(
                problem,
                5,
                tau,
                d,
                m,
                1,
                1 / (d * m),
                0.0,
                tuple(k.tolist()),
                tuple(accuracy.tolist()),
                omega / m,
            )
        )
    write_pilots(path, pilots, "made up")
    return path
