"""Path loss, line of sight and shadowing against Sionna, an independent implementation of TR
38.901.

Needs the extra `sionna` (PyTorch, no ray tracing); skipped where it is not installed.
"""

import importlib

import numpy as np
import pytest
import torch

from autofl.channels.tr38901 import (
    SCENARIOS,
    Site,
    los_probability,
    path_loss_db,
    shadowing_deviation_db,
)

tr38901 = pytest.importorskip("sionna.phy.channel.tr38901", reason="needs the extra sionna")

LINKS = 1000
KINDS = {"umi": "UMi", "uma": "UMa", "rma": "RMa", "inh-mixed": "InH", "inh-open": "InH"}


def theirs(name, carrier, bs_height, ue_height, distance, los):
    """Path loss [dB], probability of line of sight and deviation of shadowing [dB] of links at
    these distances.
    """
    array = tr38901.PanelArray(
        num_rows_per_panel=1,
        num_cols_per_panel=1,
        polarization="single",
        polarization_type="V",
        antenna_pattern="omni",
        carrier_frequency=carrier,
        precision="double",
    )
    settings = {
        "carrier_frequency": carrier,
        "ut_array": array,
        "bs_array": array,
        "direction": "uplink",
    }
    settings |= {"precision": "double", "device": "cpu"}
    if name.startswith("inh"):
        settings["indoor_scenario"] = name.removeprefix("inh-")
    elif name != "rma":
        settings["o2i_model"] = "low"
    module = importlib.import_module(f"sionna.phy.channel.tr38901.{KINDS[name].lower()}_scenario")
    made = getattr(module, f"{KINDS[name]}Scenario")(**settings)
    num = len(distance)
    angle = np.random.default_rng(1).uniform(0.0, 2.0 * np.pi, num)
    ue = np.stack(
        [distance * np.cos(angle), distance * np.sin(angle), np.full(num, ue_height)], axis=-1
    )
    zeros = torch.zeros(1, num, 3, dtype=torch.float64)
    more = {"in_car": torch.zeros(1, num, dtype=torch.bool)} if name == "rma" else {}
    made.set_topology(
        ut_loc=torch.from_numpy(ue)[None],
        bs_loc=torch.tensor([[[0.0, 0.0, bs_height]]], dtype=torch.float64),
        ut_orientations=zeros,
        bs_orientations=torch.zeros(1, 1, 3, dtype=torch.float64),
        ut_velocities=zeros,
        in_state=torch.full((1, num), name.startswith("inh")),
        los=los,
        **more,
    )
    made._compute_pathloss_basic()
    made._compute_lsp_log_mean_std()
    sigma = 10.0 * made.lsp_log_std[0, 0, :, 3]
    return [
        value.reshape(-1).numpy() for value in (made.basic_pathloss, made.los_probability, sigma)
    ]


@pytest.mark.parametrize("los", [True, False])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_thousand_links_are_sionnas_within_a_hundredth_of_a_decibel(name, los):
    rng, law = np.random.default_rng(38901), SCENARIOS[name]
    least, largest = max(law.reach[0], 1.0), law.reach[1] if name.startswith("inh") else 5000.0
    for carrier in (0.8e9, 3.5e9, 28e9):
        bs_height = float(rng.uniform(10.0, 40.0)) if name == "rma" else law.heights[0]
        ue_height = float(rng.uniform(1.5, 10.0))
        distance = np.exp(rng.uniform(np.log(least), np.log(largest), LINKS))
        site, sees = Site(carrier, bs_height, ue_height), np.full(LINKS, los)
        loss, chance, sigma = theirs(name, carrier, bs_height, ue_height, distance, los)
        np.testing.assert_allclose(
            path_loss_db(law, site, distance, sees), loss, rtol=0.0, atol=0.01
        )
        np.testing.assert_allclose(
            los_probability(law, site, distance), chance, rtol=0.0, atol=1e-9
        )
        ours = shadowing_deviation_db(law, site, distance, sees)
        assert (
            np.abs(ours - sigma) > 1e-9
        ).mean() < 0.002  # c is 3e8 m/s in one breakpoint, 299792458 in the other
