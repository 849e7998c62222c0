"""The law of who is heard, and the rounds of training that pilots tell. NumPy, float64, pure."""

from autofl.theory.participation import Participation, excess_skew, participation

__all__ = ["Participation", "excess_skew", "participation"]
