"""Algorithm 2 in one process: a plan meets a learning algorithm."""

from autofl.simulation.loop import Past, Simulation, play, simulate
from autofl.simulation.together import fit_together, play_together, simulate_together

__all__ = [
    "Past",
    "Simulation",
    "fit_together",
    "play",
    "play_together",
    "simulate",
    "simulate_together",
]
