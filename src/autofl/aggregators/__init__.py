"""Aggregators: what the server makes of the updates that arrived."""

from autofl.aggregators.base import Aggregator, Arrived
from autofl.aggregators.mean import Mean

__all__ = ["Aggregator", "Arrived", "Mean"]
