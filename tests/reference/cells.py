"""Cells with the numbers of Table I of the paper, for tests."""

import numpy as np

from autofl.network import Cell

UPDATE_BITS = 32 * 79510  # Z of the MLP 784-100-10: 2,544,320 bit


def cell_at(distance, **changes):
    """UEs at these distances [m]: 50 uJ a sample, 3 mJ a round, at most 10 mW."""
    fields = {
        "cycles_per_sample": 1e5,
        "cpu_frequency": 1e9,
        "data_size": 3834,
        "max_energy": 3e-3,
        "max_power": 1e-2,
        "bandwidth": 1e6,
        "update_bits": UPDATE_BITS,
    }
    return Cell(distance=distance, **(fields | changes))


def paper_cell(num_ue=1, **changes):
    """The same UEs, all at 100 m unless said otherwise."""
    return cell_at(**({"distance": np.full(num_ue, 100.0)} | changes))
