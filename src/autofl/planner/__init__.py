"""The planner: for each UE and round, how many samples to train on and at what power to send. NumPy only."""

from autofl.planner.plan import STATUS_NAMES, Plan, Planner, Status
from autofl.planner.planners import MIN_SAMPLES, ExactPlanner, FixedPlanner, PaperPlanner
from autofl.planner.power import energy_limited_power, energy_limited_snr, power_computation

__all__ = [
    "MIN_SAMPLES",
    "STATUS_NAMES",
    "ExactPlanner",
    "FixedPlanner",
    "PaperPlanner",
    "Plan",
    "Planner",
    "Status",
    "energy_limited_power",
    "energy_limited_snr",
    "power_computation",
]
