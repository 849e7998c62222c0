"""The convergence theory: constants, Lemmas 1 to 3, Theorem 1 corrected and as printed. NumPy,
float64, pure; its estimates from a model and data are in `estimate` and `analyze`.
"""

from autofl_paper.theory.bound import (
    Bound,
    Choice,
    Condition,
    Meta,
    bound,
    bound_with_memory,
    choice_for,
    conditions,
    meta_of,
    printed_bound,
    printed_rounds,
)
from autofl_paper.theory.constants import (
    Constants,
    meta_bias,
    meta_second_moment,
    meta_smoothness,
    meta_spread,
    meta_variance,
    printed_meta_smoothness,
    printed_meta_spread,
    printed_meta_variance,
)
from autofl_paper.theory.memory import markov_participation, memory_of

__all__ = [
    "Bound",
    "Choice",
    "Condition",
    "Constants",
    "Meta",
    "bound",
    "bound_with_memory",
    "choice_for",
    "conditions",
    "markov_participation",
    "memory_of",
    "meta_bias",
    "meta_of",
    "meta_second_moment",
    "meta_smoothness",
    "meta_spread",
    "meta_variance",
    "printed_bound",
    "printed_meta_smoothness",
    "printed_meta_spread",
    "printed_meta_variance",
    "printed_rounds",
]
