"""Conversions at the door: inside the package every value is SI and linear."""

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
"""Float64 array; the last axis counts UEs unless a docstring says otherwise."""
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
PathLike = str | os.PathLike[str]
"""A path as callers give it; functions turn it into a `Path` at the door."""

if TYPE_CHECKING:

    class PerUE:
        """A field that is given as one number, a list or an array, and is an array over the UEs
        when it is read.
        """

        def __get__(self, cell: object, kind: object = None) -> Array: ...
        def __set__(self, cell: object, value: ArrayLike) -> None: ...

else:
    PerUE = Array


def dbm_to_watt(power_dbm: float) -> float:
    """Power (or power density) in dBm (dBm/Hz) as W (W/Hz)."""
    return float(10.0 ** ((power_dbm - 30.0) / 10.0))


def db_to_ratio(ratio_db: float) -> float:
    """Power ratio in dB as a plain ratio."""
    return float(10.0 ** (ratio_db / 10.0))
