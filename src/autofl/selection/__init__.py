"""Rules of selection: which UEs take part in a round, and how likely each was to be chosen. NumPy."""

from autofl.selection.base import Candidates, Selected, Selection
from autofl.selection.by_data import ByData
from autofl.selection.uniform import Uniform

__all__ = ["ByData", "Candidates", "Selected", "Selection", "Uniform"]
