"""How good a model is, on each UE's own test data: as it is and adapted."""

from autofl.evaluation.evaluator import (
    Evaluator,
    PreparedEvaluator,
    draw_piece,
    evaluated_ues,
    gradient_norm_sq,
    objective,
)
from autofl.evaluation.personal import PersonalModels, personal_models

__all__ = [
    "Evaluator",
    "PersonalModels",
    "PreparedEvaluator",
    "draw_piece",
    "evaluated_ues",
    "gradient_norm_sq",
    "objective",
    "personal_models",
]
