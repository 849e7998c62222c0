"""Algorithm 2 in one process: a plan meets a learning algorithm."""

from autofl.simulation.loop import Simulation, simulate
from autofl.simulation.stop import Stop
from autofl.simulation.together import fit_together, simulate_together

__all__ = ["Simulation", "Stop", "fit_together", "simulate", "simulate_together"]
