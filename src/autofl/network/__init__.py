"""The cell, its radio, and what a planned round costs. NumPy, float64, pure."""

from autofl.network.cell import Cell, channel_gain, drop_in_disc, path_gain, stacked
from autofl.network.cost import (
    Cost,
    Outage,
    RoundCost,
    arrives,
    compute_cost,
    decoded,
    downlink_time,
    drawn_power,
    fixed_time,
    listening_energy,
    longest_upload,
    rate,
    round_cost,
    snr,
    upload_cost,
)
from autofl.network.links import Law, Link
from autofl.network.plan import (
    DECISIONS,
    LIMITS,
    STATUS_NAMES,
    Certificate,
    Plan,
    Status,
    make_plan,
)
from autofl.network.success import printed_success_probability

__all__ = [
    "DECISIONS",
    "LIMITS",
    "STATUS_NAMES",
    "Cell",
    "Certificate",
    "Cost",
    "Law",
    "Link",
    "Outage",
    "Plan",
    "RoundCost",
    "Status",
    "arrives",
    "channel_gain",
    "compute_cost",
    "decoded",
    "downlink_time",
    "drawn_power",
    "drop_in_disc",
    "fixed_time",
    "listening_energy",
    "longest_upload",
    "make_plan",
    "path_gain",
    "printed_success_probability",
    "rate",
    "round_cost",
    "snr",
    "stacked",
    "upload_cost",
]
