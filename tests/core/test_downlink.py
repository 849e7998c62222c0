"""A compressed downlink: the UEs train from a reference r, the server keeps w, and r follows w."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from autofl.compressors import Sent
from autofl.compressors.nearest import Nearest
from autofl.compressors.quantise import Quantise
from autofl.compressors.top_k import TopK
from autofl.config import dump_settings, load_settings, parse_settings
from autofl.core.downlink import decided_bits, received_model
from autofl.core.horizon import draw_horizon
from autofl.core.simulation import simulate, simulated
from autofl.data import ByOwner, Dataset
from autofl.engines import flat
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.experiments.cell import build_network, plan
from autofl.jobs.recording import write_run
from autofl.jobs.run import manifest_of
from autofl.planner.downlink import WHOLE, best_message, offer_of
from autofl.registry import PARTS, find
from autofl.rng import stream
from reference.networks import decided


def sent(received):
    return Sent(received, 32.0 * len(received), lambda: received.numpy().tobytes())


@dataclass(frozen=True)
class Whole:
    """Sends everything as it is."""

    def update_bits(self, num_weights, bits_per_weight=None):
        return 32.0 * num_weights

    def init(self, num_weights):
        return {}

    def __call__(self, change, bits_per_weight, randomness, own):
        return sent(change.clone()), own

    def unpack(self, payload, num_weights):
        return torch.from_numpy(np.frombuffer(payload, np.float32).copy())


@dataclass(frozen=True)
class Signs(Whole):
    def __call__(self, change, bits_per_weight, randomness, own):
        return sent(change.sign()), own


def test_one_message_worked_by_hand():
    # x = (5, -1, 0, 2): its signs meet it in 5 + 1 + 2 = 8, their own length is 3, so s = 8/3.
    model = {"a": torch.tensor([[6.0, 0.0]]), "b": torch.tensor([1.0, 2.0])}
    held = {"a": torch.tensor([[1.0, 1.0]]), "b": torch.tensor([1.0, 0.0])}
    after, bits = received_model(Signs(), model, held, seed=1, k=1)
    torch.testing.assert_close(after["a"], torch.tensor([[1.0 + 8 / 3, 1.0 - 8 / 3]]))
    torch.testing.assert_close(after["b"], torch.tensor([1.0, 8 / 3]))
    assert bits == 4 * 32 + 32  # and the factor


def test_where_nothing_has_changed_nothing_moves():
    model = {"w": torch.randn(300)}
    after, _ = received_model(Quantise(4), model, model, seed=1, k=1)
    assert torch.equal(after["w"], model["w"])


@pytest.mark.parametrize("compressor", [*(find("compressor", name).build({}, {}) for name in PARTS["compressor"]),
                                        Quantise(bits=2), TopK(share=0.01), Signs()], ids=repr)  # fmt: skip
def test_the_reference_converges_to_a_model_that_stands_still(compressor):
    model = {"w": torch.from_numpy(stream(1, "test").normal(size=2000).astype(np.float32))}
    held = {"w": torch.zeros(2000)}
    away = [1.0]
    for k in range(300):
        held = received_model(compressor, model, held, seed=1, k=k)[0]
        away.append(float((model["w"] - held["w"]).norm() / model["w"].norm()))
        assert away[-1] <= away[-2] * (1.0 + 1e-4) or away[-1] < 1e-5  # float32
    assert away[-1] < 0.05


def test_without_the_factor_two_bits_would_leave_the_reference_farther_away_than_it_was():
    model, compressor = (
        torch.from_numpy(stream(1, "test").normal(size=4096) ** 3).float(),
        Quantise(2, block=4096),
    )
    bare, held, budget = (
        torch.zeros(4096),
        {"w": torch.zeros(4096)},
        compressor.update_bits(4096) / 4096,
    )
    for k in range(20):
        bare = (
            bare
            + compressor(model - bare, budget, lambda k=k: stream(1, "downlink", k), {})[0].received
        )
        held = received_model(compressor, {"w": model}, held, seed=1, k=k)[0]
    assert (model - bare).norm() > 1.5 * model.norm()
    assert (model - held["w"]).norm() < 0.15 * model.norm()


# As in test_loop_by_hand.py: two weights, every input 1, UEs 0 to 2 own samples of class 0, UE 3 of
# class 1, and all
# who are selected are heard. A step of size 1 takes a UE of class 0 by (1 - p, p - 1), one of class
# 1 by (-p, p), where
# p = 1/(1 + exp(r_1 - r_0)).
OWNER = np.repeat(np.arange(4), 20)
STRONG = (2.0**14 - 1.0) * 10.0**-14.4 / 1e-2
TABLE = {
    "cell": {"num_ue": 4, "distance": 1.0, "small_scale_gain": STRONG, "update_bits": 140_000.0},
    "learning": {"outer_lr": 0.5},
    "simulation": {"num_selected": 3, "device": "cpu"},
    "stop": {"rounds": 12},
    "evaluation": {"every": 1},
}
LABEL = np.array([0, 0, 0, 1])


def simulation(own=None, arm="fedavg-1", **sections):
    changed = {name: {**TABLE.get(name, {}), **more} for name, more in sections.items()}
    settings = parse_settings({**TABLE, **changed, "arm": arm})
    dataset = Dataset("ones", np.ones((80, 1), np.float32), LABEL[OWNER], 2)
    model = nn.Linear(1, 2, bias=False)
    model.weight.data = torch.tensor([0.3, 0.1]).view(2, 1)
    return build_simulation(
        settings, data=dataset.federate(ByOwner(OWNER), 4, seed=1), model=model, **(own or {})
    )


def checkpoints(sim):
    """The records and checkpoints of a run after round 0."""
    return [(step.round, step.checkpoint) for step in simulated(sim)][1:]


@dataclass(frozen=True)
class OneOfTwo(Whole):
    """Sends one of two weights, drawn anew in each round."""

    def __call__(self, change, bits_per_weight, randomness, own):
        return sent(change * (torch.arange(2) == int(randomness().integers(2)))), own


def test_the_server_keeps_what_the_reference_lost_round_by_round():
    w = r = np.array([0.3, 0.1])
    apart = 0
    for record, after in checkpoints(simulation(own={"downlink": OneOfTwo()})):
        p = 1.0 / (1.0 + math.exp(r[1] - r[0]))
        move = 0.5 * (np.mean(LABEL[record.ue] == 0) - p)
        w = w + np.array([move, -move])
        r = np.where(np.arange(2) == stream(1, "downlink", record.k).integers(2), w, r)
        np.testing.assert_allclose(flat(after.state.params).numpy(), w, atol=1e-6)
        np.testing.assert_allclose(flat(after.held).numpy(), r, atol=1e-6)
        loss = np.log1p(np.exp(np.where(LABEL == 0, r[1] - r[0], r[0] - r[1]))).mean()
        assert record.evaluation.train_loss == pytest.approx(
            loss, rel=1e-5
        )  # of the UEs' model, not of the server's
        apart += not np.allclose(w, r, atol=1e-3)
    assert apart >= 10


def test_without_a_compressor_the_ues_have_the_model_itself():
    for _, after in checkpoints(simulation()):
        assert after.held is None
        assert after.sent is after.state.params


@pytest.mark.parametrize("algorithm", ["fedavg-1", "per-fedavg", "scaffold", "fedopt", "ditto"])
def test_a_compressor_that_loses_nothing_changes_nothing(algorithm):
    plain = [state for _, state in simulate(simulation(arm=algorithm))]
    whole = [state for _, state in simulate(simulation(arm=algorithm, own={"downlink": Whole()}))]
    for one, other in zip(plain, whole, strict=True):
        for name, p in one.sent.items():
            torch.testing.assert_close(other.sent[name], p, rtol=1e-5, atol=1e-6)


def test_nothing_goes_down_while_nobody_takes_part():
    deaf = simulation(
        cell={"small_scale_gain": 1e-3 * STRONG, "downlink_power": 1.0},
        downlink={"name": "quantise"},
    )
    first = flat(deaf.params)
    for record, after in checkpoints(deaf):
        assert record.cost.downlink_time == 0.0
        assert torch.equal(flat(after.held), first)


def test_a_smaller_message_is_booked_with_its_own_size():
    # At 1 W in 3 MHz the SNR is (2^14 - 1) 100/3: 16383 * 33.3 = 546100, log2 of one more 19.05881
    # bit/s/Hz.
    cell = {"downlink_power": 1.0}
    plain, packed = (
        simulation(cell=cell),
        simulation(cell=cell, downlink={"name": "quantise", "bits": 4}),
    )
    assert (plain.cell.downlink_bits, packed.cell.downlink_bits) == (2 * 32, 2 * 4 + 16 + 32)
    for sim in (plain, packed):
        for record, _ in checkpoints(sim):
            expected = sim.cell.downlink_bits / (3e6 * 19.05881)
            assert record.cost.downlink_time == pytest.approx(expected, rel=1e-6)


def test_a_lossy_downlink_may_be_free():
    (record, after), *_ = checkpoints(simulation(downlink={"name": "quantise"}))
    assert record.cost.downlink_time == 0.0
    assert after.held is not None


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"name": "zip"}, "compressor 'zip' is unknown"),
        ({"bits": 4}, "compressor none: unknown setting 'bits'; it has none"),
        ({"name": "quantise", "bits": 99}, "bits: must be from 2 to 16"),
    ],
)
def test_nonsense_is_refused(section, words):
    with pytest.raises(AutoFLError, match=f"downlink: .*{words}"):
        simulation(downlink=section)


def test_what_a_compressor_really_sends_is_booked_in_the_next_round():
    @dataclass(frozen=True)
    class Shorter(Whole):
        """Sends as many bits as the round has, whatever it announces."""

        def __call__(self, change, bits_per_weight, randomness, own):
            return Sent(change.clone(), float(randomness().integers(100)) + 1.0, lambda: b""), own

    sizes = [64.0 + 32.0] + [
        float(stream(1, "downlink", k).integers(100)) + 33.0 for k in range(1, 12)
    ]
    played = checkpoints(simulation(cell={"downlink_power": 1.0}, own={"downlink": Shorter()}))
    for (record, _), size in zip(played, sizes, strict=True):
        assert record.cost.downlink_time == pytest.approx(size / (3e6 * 19.05881), rel=1e-6)


def test_a_compressor_of_ones_own_that_gives_something_else_is_named():
    @dataclass(frozen=True)
    class Bare(Whole):
        def __call__(self, change, bits_per_weight, randomness, own):
            return change, own

    with pytest.raises(AutoFLError, match="downlink Bare: it must give a Sent, with the 2 weights"):
        checkpoints(simulation(own={"downlink": Bare()}))


def test_a_reference_that_is_no_longer_finite_ends_the_run():
    @dataclass(frozen=True)
    class Endless(Whole):
        def __call__(self, change, bits_per_weight, randomness, own):
            return sent(torch.full_like(change, torch.inf)), own

    (record, after), *others = checkpoints(simulation(own={"downlink": Endless()}))
    assert record.stop == "diverged"
    assert not others
    assert flat(after.state.params).tolist() == pytest.approx([0.3, 0.1])


@dataclass(frozen=True)
class Halves(Whole):
    """Sends the first half of the weights with one bit, all of them with two."""

    def losses(self):
        return [(1.0, 0.5), (2.0, 0.0)]

    def update_bits(self, num_weights, bits_per_weight=None):
        return (bits_per_weight or 1.0) * num_weights

    def __call__(self, change, bits_per_weight, randomness, own):
        kept = change.clone()
        kept[len(kept) // 2 :] *= bits_per_weight > 1.5
        return Sent(kept, bits_per_weight * len(change), lambda: b""), own


def a_round(down, rest):
    """A round as far as the downlink goes: 10,000 bits were sent down in `down` seconds."""
    cost = SimpleNamespace(time=np.array(down + rest), downlink_time=np.array(down))
    return SimpleNamespace(cost=cost, cell=SimpleNamespace(downlink_bits=1e4), k=3)


def test_bits_follow_what_is_measured_on_the_very_difference():
    # One bit a weight takes 10 ms, as long as all the rest: two take 3/2 of the time, so a message
    # that loses half of
    # the difference or more, (1 - 3/4 1/2)/20 < 1/30, is not worth it.
    model, held = {"w": torch.zeros(4_000)}, {"w": torch.zeros(4_000)}
    model["w"][:2_000] = 1.0
    assert (
        decided_bits(Halves(), model, held, a_round(down=0.025, rest=0.01), seed=1) == 1.0
    )  # nothing is lost
    model["w"][2_000:] = 1.0
    assert (
        decided_bits(Halves(), model, held, a_round(down=0.025, rest=0.01), seed=1) == 2.0
    )  # a half would be
    assert decided_bits(Halves(), model, held, a_round(down=0.0, rest=0.01), seed=1) == WHOLE


def test_a_message_of_all_bits_is_the_model_to_the_bit():
    model, held = {"w": torch.randn(500)}, {"w": torch.randn(500)}
    after, bits = received_model(Nearest(), model, held, seed=1, k=1, bits_per_weight=WHOLE)
    assert torch.equal(after["w"], model["w"])
    assert bits == 32.0 * 500


JOINT = [
    "arm=autofl-j",
    "stop.rounds=6",
    "evaluation.every=6",
    "evaluation.test_samples=5",
    "cell.num_ue=6",
]
COSTLY = ["cell.downlink_power=1.0", "cell.downlink_bandwidth=1e5", "preset=physical"]


def played(*overrides):
    sim = build_simulation(load_settings(overrides=[*JOINT, *overrides]))
    return sim, checkpoints(sim)


def test_a_run_sends_what_it_has_decided_and_books_it():
    sim, rounds = played(*COSTLY)
    assert sim.arm.decides_downlink
    for (_, after), (record, _) in pairwise(rounds):
        assert record.downlink_bits == after.message / sim.cell.num_weights
        assert record.cost.downlink_time > 0.0
    offered = [bits for bits, _ in Nearest().losses()]
    for record, _ in rounds:
        assert min(abs(record.downlink_bits / bits - 1.0) for bits in offered) < 0.3  # nearly full
    _, fine = played("cell.downlink_power=1e3", "cell.downlink_bandwidth=1e9", "preset=physical")
    assert np.mean([r.downlink_bits for r, _ in fine]) > 2.0 * np.mean(
        [r.downlink_bits for r, _ in rounds]
    )


def test_where_the_downlink_is_free_a_joint_arm_sends_the_model_itself():
    sim, rounds = played()
    assert sim.arm.downlink is None
    assert all(after.held is None and record.downlink_bits == 32.0 for record, after in rounds)
    _, same = played("downlink.name=nearest")  # asked for, and not worth it
    for (record, after), (other, lossless) in zip(rounds, same, strict=True):
        assert (record.sim_time, other.downlink_bits) == (other.sim_time, 32.0)
        torch.testing.assert_close(flat(after.sent), flat(lossless.held), rtol=1e-4, atol=1e-5)


def test_a_planned_round_and_a_forecast_have_the_bits_of_what_is_typically_lost():
    settings = load_settings(
        overrides=[*JOINT, *COSTLY, "simulation.num_selected=6", "data.name=mnist"]
    ).resolved()
    made = plan(settings)
    this_round, network = made.round, build_network(settings)
    offer = offer_of(network.decided_downlink, int(this_round.cell.num_weights))
    own, _ = decided(replace(network, arm=replace(network.arm, decides_downlink=False)))
    place = best_message(
        offer, own.cost, own.cell.downlink_bits
    )  # for the round with the compressor's own bits
    assert own.cell.downlink_bits == Nearest().update_bits(79_510) + 32.0
    assert offer.size[place] == this_round.cell.downlink_bits
    assert made.summary()["downlink_bits"] == pytest.approx(offer.bits_per_weight[place], rel=1e-2)
    assert made.downlink_choice()["lost"] == pytest.approx(offer.lost[place])
    horizon = draw_horizon(network, 5)
    assert horizon.round_time[0] == this_round.cost.time
    assert ((horizon.pace > 0.25) & (horizon.pace < 1.0)).all()
    assert (draw_horizon(build_network(load_settings(overrides=JOINT)), 3).pace == 1.0).all()


def test_only_a_compressor_that_says_what_it_loses_can_be_decided_about():
    sim = simulation()
    with pytest.raises(AutoFLError, match="downlink Quantise: its bits cannot be decided"):
        replace(sim.arm, downlink=Quantise(4), decides_downlink=True)


def test_the_bits_of_each_round_are_a_column_of_its_table(tmp_path):
    settings = load_settings(overrides=[*JOINT, *COSTLY]).resolved()
    sim = build_simulation(settings)
    run = write_run(sim, tmp_path / "run", dump_settings(settings), manifest_of(settings, sim, {}))
    expected = [record.downlink_bits for record, _ in checkpoints(sim)]
    assert np.isnan(run.rounds["downlink_bits"][0])  # nothing is sent before training
    assert run.rounds["downlink_bits"][1:].tolist() == expected
