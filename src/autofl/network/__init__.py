"""The cell and its radio: where UEs are, what they hear, what a round costs them. NumPy, float64, pure."""

from autofl.network.cell import Cell, channel_gain, drop_in_disc, path_gain, select
from autofl.network.cost import (
    Cost,
    Outage,
    RoundCost,
    compute_cost,
    decoded,
    longest_upload,
    rate,
    round_cost,
    snr,
    upload_cost,
)
from autofl.network.fading import Exponential, Fading, NoFading, OwnFading, Rayleigh
from autofl.network.success import printed_success_probability, success_probability

__all__ = [
    "Cell",
    "Cost",
    "Exponential",
    "Fading",
    "NoFading",
    "Outage",
    "OwnFading",
    "Rayleigh",
    "RoundCost",
    "channel_gain",
    "compute_cost",
    "decoded",
    "drop_in_disc",
    "longest_upload",
    "path_gain",
    "printed_success_probability",
    "rate",
    "round_cost",
    "select",
    "snr",
    "success_probability",
    "upload_cost",
]
