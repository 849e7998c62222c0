"""Planners: every decision of every UE in a round. NumPy only."""

from autofl.planner.base import (
    MIN_SAMPLES,
    Memory,
    Memoryless,
    Observing,
    Planner,
    check_bits,
    observed,
)
from autofl.planner.exact import ExactPlanner
from autofl.planner.fixed import FixedPlanner
from autofl.planner.joint import JointPlanner
from autofl.planner.paper import PaperPlanner
from autofl.planner.power import energy_limited_power, energy_limited_snr, power_computation

__all__ = [
    "MIN_SAMPLES",
    "ExactPlanner",
    "FixedPlanner",
    "JointPlanner",
    "Memory",
    "Memoryless",
    "Observing",
    "PaperPlanner",
    "Planner",
    "check_bits",
    "energy_limited_power",
    "energy_limited_snr",
    "observed",
    "power_computation",
]
