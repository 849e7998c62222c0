"""How good a model is, on each UE's own test data: as it is and adapted."""

from autofl.evaluation.evaluator import Evaluator, Judge, draw_piece, gradient_norm_sq, judged_ues

__all__ = ["Evaluator", "Judge", "draw_piece", "gradient_norm_sq", "judged_ues"]
