"""Aggregators: what the server makes of the updates that arrived."""

from autofl.robust.aggregators.base import Aggregator, Arrived
from autofl.robust.aggregators.mean import Mean

__all__ = ["Aggregator", "Arrived", "Mean"]
