"""What a planner knows of the gains: errors, age, and a margin that holds an outage probability."""

from dataclasses import replace

import numpy as np
import pytest

from autofl.channels import Channel, Exponential, Knowledge, PathLoss
from autofl.channels.knowledge import MARGINS
from autofl.channels.radio import Radio
from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_channel, build_network
from autofl.network import Cell
from autofl.planner import ExactPlanner
from autofl.rng import stream
from autofl.selection import Uniform
from reference.networks import decided, network_of


class Drifting(Channel):
    """Gains in dB that forget 30 % of themselves from one round to the next."""

    def gain(self, cell, seed, k):
        level = stream(seed, "drift", 0).standard_normal(cell.num_ue)
        for step in range(1, k + 1):
            level = 0.7 * level + np.sqrt(1 - 0.49) * stream(seed, "drift", step).standard_normal(
                cell.num_ue
            )
        return 1e-9 * 10.0 ** (0.6 * level)


def cell_of(num_ue, **others):
    return Cell(distance=np.full(num_ue, 100.0), **others)


def shares(channel, cell, num_rounds):
    """In how many of the cases the true gain is below what is known."""
    below = []
    for k in range(5, 5 + num_rounds):
        gain = channel.gain(cell, 3, k)
        below.append(gain < channel.estimate(cell, 3, k, gain))
    return np.mean(below)


def test_the_error_has_the_deviation_asked_for_and_is_the_same_again():
    channel, cell = Knowledge(PathLoss(Exponential(1.0)), error_db=3.0), cell_of(20_000)
    gain = channel.gain(cell, 3, 1)
    error = 10.0 * np.log10(channel.estimate(cell, 3, 1, gain) / gain)
    assert abs(error.std() - 3.0) < 0.05
    assert abs(error.mean()) < 0.1
    np.testing.assert_array_equal(
        channel.estimate(cell, 3, 1, gain), channel.estimate(cell, 3, 1, gain)
    )
    assert (channel.estimate(cell, 3, 2, gain) != channel.estimate(cell, 3, 1, gain)).all()


def test_old_gains_are_those_of_the_round_they_are_from():
    inner, cell = PathLoss(Exponential(1.0)), cell_of(50)
    channel = Knowledge(inner, age=3)
    np.testing.assert_array_equal(
        channel.estimate(cell, 3, 9, channel.gain(cell, 3, 9)), inner.gain(cell, 3, 6)
    )
    np.testing.assert_array_equal(
        channel.estimate(cell, 3, 2, channel.gain(cell, 3, 2)), inner.gain(cell, 3, 1)
    )


@pytest.mark.parametrize("outage", [0.05, 0.2])
@pytest.mark.parametrize(
    "channel",
    [
        Knowledge(PathLoss(Exponential(1.0)), error_db=4.0),
        Knowledge(PathLoss(Exponential(1.0)), 2.0, 1),
        Knowledge(Drifting(), 0.0, 2),
    ],
    ids=["error", "old and new fading", "drift"],
)
def test_the_margin_holds_the_outage_asked_for(channel, outage):
    share = shares(replace(channel, outage=outage), cell_of(1000), 20)
    assert abs(share - outage) < 0.03 * (outage > 0.1) + 0.012


def test_what_is_lost_and_what_is_sent_again_is_paid_for():
    """Without a margin half of the updates are lost; with more tries they arrive, later and for
    more energy.
    """
    cell = cell_of(400, max_energy=1.0, snr_threshold=1.0)
    inner, totals = PathLoss(Exponential(1.0)), {}
    for tries, outage in ((1, None), (1, 0.02), (8, None)):
        channel = Knowledge(inner, 3.0, 0, outage)
        once = replace(cell, tries=tries)
        made, _ = decided(network_of(once, channel, ExactPlanner(0.02), Uniform(400), seed=5))
        assert made.sends.mean() > 0.95
        totals[tries, outage] = (
            made.decoded[made.sends].mean(),
            made.cost.upload_time.mean(),
            made.cost.energy.mean(),
        )
    assert abs(totals[1, None][0] - 0.5) < 0.08
    assert abs(totals[1, 0.02][0] - 0.98) < 0.025
    assert totals[8, None][0] > 0.99
    assert totals[8, None][1] > 1.3 * totals[1, None][1]
    assert totals[8, None][2] > 1.2 * totals[1, None][2]  # computing is done once
    assert totals[1, 0.02][1] > totals[1, None][1]  # the margin is paid for with time


def test_settings_make_any_channel_uncertain():
    assert isinstance(build_channel(load_settings()), PathLoss)
    settings = load_settings(
        overrides=[
            "knowledge.error_db=2",
            "knowledge.age=1",
            "knowledge.outage=0.1",
            "link.tries=2",
        ]
    )
    channel = build_channel(settings)
    assert isinstance(channel, Knowledge)
    assert (channel.error_db, channel.age, channel.outage) == (2.0, 1, 0.1)
    assert build_network(settings).air.cell.tries == 2
    with pytest.raises(AutoFLError, match="Knowledge: outage: must be > 0 and < 1"):
        Knowledge(channel, outage=1.0)


def test_listening_is_paid_from_the_budget():
    settings = load_settings(
        overrides=[
            "cell.downlink_power=0.01",
            "cell.receive_power=0.04",
            "planner.name=exact",
            "link.name=gap",
        ]
    )
    network = build_network(settings)
    planned, _ = decided(network)
    deaf = network.air.cell.having(receive_power=0.0)
    free, _ = decided(replace(network, air=replace(network.air, cell=deaf)))
    assert planned.sends.any()
    assert (planned.cost.energy <= planned.cell.max_energy * (1 + 1e-9)).all()
    assert (planned.plan.num_samples <= free.plan.num_samples).all()
    assert (planned.plan.num_samples < free.plan.num_samples).any()


def test_a_delay_of_the_channels_own_estimate_is_in_the_margin():
    cell = cell_of(40)
    radio = Radio("uma", mobility="waypoint", speed=0.5, estimate_delay=0.1, landscape=3)
    channel = Knowledge(radio, error_db=1.0, outage=0.1)
    worse = []
    for k in range(1, 26):
        at = channel.at(2.0 * k)
        gain = at.gain(cell, 9, k)
        worse.append(at.estimate(cell, 9, k, gain) > gain)
    assert abs(np.mean(worse) - 0.1) < 0.03  # 1,000 values
    assert (
        channel.at(3.0).estimate(cell, 9, 1, gain).mean()
        < 0.6 * radio.at(3.0).estimate(cell, 9, 1, gain).mean()
    )


def test_equal_channels_share_a_margin_and_another_cell_or_channel_has_its_own():
    """A plan for a target looks at equal cells many times; each of its looks builds the channel
    anew.
    """
    channel = Knowledge(
        Radio("uma", mobility="waypoint", speed=13.9, upload=1.0, estimate_delay=0.1), outage=0.1
    )
    cell = cell_of(20)
    MARGINS.clear()
    margin = channel._margin(cell)
    assert replace(channel)._margin(cell_of(20)) == margin
    assert len(MARGINS) == 1

    # Fading averages out over an upload by the rate, so the margin depends on the power too.
    for other, there in (
        (channel, cell_of(20, max_power=1.0)),
        (replace(channel, outage=0.2), cell),
    ):
        assert other._margin(there) == other._quantile(there, other.outage)
        assert other._margin(there) != margin
