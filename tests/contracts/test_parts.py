"""Promises that every registered part of a kind keeps, and a user's own given as module:object.

Whoever adds a part to the registry has it tested here without a further line.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from autofl.algorithms import Algorithm, is_stateful
from autofl.config import load_settings
from autofl.core.simulation import simulated
from autofl.data.federated import federate
from autofl.engines import ClientMemory, CompressedUpdates, flat, make_engine, pick_engine, shaped
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.experiments.data import build_data
from autofl.jobs.run import run
from autofl.models import build, mlp, params_of
from autofl.network import DECISIONS, LIMITS, Cell, decoded, round_cost
from autofl.planner import Observing
from autofl.quality import Evaluation
from autofl.registry import PARTS, find
from autofl.rng import stream
from autofl.robust.aggregators import Arrived
from autofl.robust.attacks import Attacked
from autofl.selection import Candidates
from compressors.cases import updates_of
from reference.updates import NUM_SAMPLES, UE, received

OWN = {
    "algorithm": "contracts.own_parts:ServerMomentum",
    "planner": "contracts.own_parts:Greedy",
    "channel": "contracts.own_parts:Waves",
    "link": "contracts.own_parts:TwoRates",
    "selection": "contracts.own_parts:Nearest",
    "compressor": "contracts.own_parts:Signs",
    "aggregator": "contracts.own_parts:Median",
    "attack": "contracts.own_parts:Twice",
    "model": "contracts.own_parts:tiny",
    "data": "contracts.own_parts:stripes",
    "partition": "contracts.own_parts:Halves",
}
CONTEXT = {
    "inner_lr": 0.03,
    "outer_lr": 0.07,
    "variant": "exact",
    "num_selected": 4,
    "num_ue": 12,
    "heard_probability": np.full(12, 0.8),
}


def names(kind):
    return [*PARTS[kind], OWN[kind]]


def observes(name):
    return isinstance(find("planner", name).build({}, CONTEXT), Observing)


def cell_of(num_ue=12, seed=3):
    rng = np.random.default_rng(seed)
    return Cell(
        distance=rng.uniform(20.0, 400.0, num_ue),
        cycles_per_sample=rng.uniform(0.8e5, 1.2e5, num_ue),
        cpu_frequency=10.0 ** rng.uniform(8.5, 9.3, num_ue),
        data_size=rng.integers(1, 200, num_ue),
        max_energy=10.0 ** rng.uniform(-3.5, -2.0, num_ue),
        max_power=10.0 ** rng.uniform(-2.5, -1.5, num_ue),
        bandwidth=1e6,
        update_bits=32.0 * 5000,
    )


def gain_of(cell, *shape, seed=4):
    rng = np.random.default_rng(seed)
    return rng.exponential(1.0, (*shape, cell.num_ue)) * cell.distance**-3.8


# ---- planners ----


@pytest.mark.parametrize("name", names("planner"))
def test_a_plan_decides_everything_and_breaks_no_limit(name):
    planner = find("planner", name).build({}, CONTEXT)
    for seed in range(30):
        cell = cell_of(seed=seed)
        gain = gain_of(cell, seed=100 + seed)
        plan, memory = planner(cell, gain, planner.init(cell))
        for field in (*DECISIONS, *LIMITS):
            assert getattr(plan, field).shape == (cell.num_ue,), field
        assert all(isinstance(array, np.ndarray) for array in memory.values())
        out = ~plan.feasible
        assert (plan.num_samples[out] == 0).all()
        assert (plan.tx_power[out] == 0).all()
        assert (plan.num_samples <= cell.data_size).all()
        assert (plan.tx_power <= cell.max_power * (1 + 1e-12)).all()
        assert (plan.local_steps >= 1).all()
        assert (plan.weight > 0).all()
        assert decoded(plan.applied(cell), gain, plan.tx_power)[plan.feasible].all()
        assert (round_cost(cell, gain, plan).energy <= cell.max_energy * (1 + 1e-8)).all()


@pytest.mark.parametrize("name", names("planner"))
def test_a_planner_is_pure_and_knows_ues_by_their_numbers(name):
    planner, cell = find("planner", name).build({}, CONTEXT), cell_of()
    gain, memory = gain_of(cell), planner.init(cell)
    before = {key: value.copy() for key, value in memory.items()}
    first, after = planner(cell, gain, memory)
    again, _ = planner(cell, gain, memory)
    for key, value in before.items():
        np.testing.assert_array_equal(memory[key], value)
    order = np.random.default_rng(1).permutation(cell.num_ue)
    turned, mixed = planner(cell.take(order), gain[order], memory)
    for field in (*DECISIONS, *LIMITS):
        np.testing.assert_array_equal(getattr(first, field), getattr(again, field))
        np.testing.assert_array_equal(getattr(turned, field), getattr(first, field)[order])
    for key, value in after.items():
        np.testing.assert_array_equal(mixed[key], value)


@pytest.mark.parametrize("name", names("planner"))
def test_rounds_planned_in_one_call_are_planned_as_alone(name):
    planner, cell = find("planner", name).build({}, CONTEXT), cell_of()
    if not getattr(planner, "batched", False):
        pytest.skip("plans one round at a time")
    gains, memory = gain_of(cell, 5), planner.init(cell)
    several = cell.having(
        **{key: np.stack([getattr(cell, key)] * 5) for key in (*Cell.PER_UE, "ue")}
    )
    together, _ = planner(
        several, gains, {key: np.stack([value] * 5) for key, value in memory.items()}
    )
    for k in range(5):
        alone, _ = planner(cell, gains[k], memory)
        for field in (*DECISIONS, *LIMITS):
            np.testing.assert_allclose(
                getattr(together, field)[k], getattr(alone, field), rtol=1e-12
            )


OBSERVING = [name for name in (*names("planner"), "contracts.own_parts:Watchful") if observes(name)]


@pytest.mark.parametrize("name", OBSERVING)
def test_a_planner_that_observes_is_pure_and_keeps_the_form_of_its_memory(name):
    planner, cell = find("planner", name).build({}, CONTEXT), cell_of()
    memory = planner.init(cell)
    form = {key: value.shape for key, value in memory.items()}
    for quality in (
        Evaluation(2.3, 2.2, 0.1, 0.2),
        Evaluation(),
        Evaluation(0.4, 0.3, 0.8, 0.9, 0.1),
    ):
        before = {key: value.copy() for key, value in memory.items()}
        after = planner.observe(memory, quality)
        for key, value in before.items():
            np.testing.assert_array_equal(memory[key], value)
        assert {key: value.shape for key, value in after.items()} == form
        for key, value in planner.observe(memory, quality).items():
            np.testing.assert_array_equal(after[key], value)
        memory = memory if np.isnan(quality.train_loss) else after
        plan, kept = planner(cell, gain_of(cell), memory)
        assert plan.problem(cell) is None
        assert {key: value.shape for key, value in kept.items()} == form


@pytest.mark.parametrize("name", OBSERVING)
def test_a_run_of_a_planner_that_observes_goes_on_from_a_checkpoint(name, few_digits):
    """What it was told is in its memory, so the rounds after a checkpoint are those of the whole
    run.
    """
    changes = [
        f'planner.name="{name}"',
        'compressor.name="quantise"',
        "cell.num_ue=8",
        "simulation.num_selected=3",
        "stop.rounds=16",
        "evaluation.every=2",
        "learning.outer_lr=0.15",
        "learning.local_steps=4",
        "cell.max_energy=0.03",
    ]
    settings = load_settings(overrides=changes)
    sim = build_simulation(settings, data=build_data(settings, few_digits))
    whole = [(step.round, step.checkpoint) for step in simulated(sim)]
    _, checkpoint = whole[7]
    checkpoint = replace(
        checkpoint, memory={key: np.array(value) for key, value in checkpoint.memory.items()}
    )
    rest = [(step.round, step.checkpoint) for step in simulated(sim, checkpoint)]
    assert len(rest) == 9
    for (one, _), (other, _) in zip(whole[8:], rest, strict=True):
        for decision in DECISIONS:
            np.testing.assert_array_equal(
                getattr(one.plan, decision), getattr(other.plan, decision)
            )
        assert repr(one.evaluation) == repr(other.evaluation)  # NaN equals nothing, its text does
    decided = [record.plan for record, _ in whole[1:]]
    assert any(
        len({float(getattr(plan, name).max()) for plan in decided}) > 1
        for name in ("num_samples", "bits_per_weight")
    )


# ---- channels ----


def channel_of(name, tmp_path):
    """Each channel with what it needs: the trace has a file."""
    from autofl.channels import Exponential

    np.savetxt(
        tmp_path / "gains.csv", np.random.default_rng(2).exponential(1e-8, (40, 12)), delimiter=","
    )
    part = find("channel", name)
    context = {"fading": Exponential(1.0), "num_ue": 12, "file": str(tmp_path / "gains.csv")}
    return part.build({}, context)


@pytest.mark.parametrize("name", names("channel"))
def test_gains_are_a_function_of_cell_seed_and_round(name, tmp_path):
    channel, cell = channel_of(name, tmp_path), cell_of()
    gains = [channel.gain(cell, 7, k) for k in range(1, 31)]
    for k, gain in enumerate(gains, start=1):
        assert gain.shape == (cell.num_ue,)
        assert np.isfinite(gain).all()
        assert (gain >= 0).all()
        known = channel.estimate(cell, 7, k, gain)
        assert known.shape == gain.shape
        np.testing.assert_array_equal(
            channel.gain(cell, 7, k), gain
        )  # any round, in any order, the same
    assert len({gain.tobytes() for gain in gains}) > 1


@pytest.mark.parametrize("name", names("channel"))
def test_the_law_of_a_channel_is_that_of_its_gains(name, tmp_path):
    channel, cell = channel_of(name, tmp_path), cell_of()
    try:
        channel.survival(cell, np.ones(cell.num_ue))
    except AutoFLError:
        pytest.skip("this channel has no law")
    gains = np.stack([channel.gain(cell, 1, k) for k in range(1, 2001)])
    for quantile in (0.2, 0.5, 0.8):
        level = np.quantile(gains, quantile, axis=0)
        share = (gains >= level).mean(axis=0)
        assert np.abs(channel.survival(cell, level) - share).max() < 5 * np.sqrt(0.25 / 2000)


# ---- selection ----


@pytest.mark.slow
@pytest.mark.parametrize("name", names("selection"))
def test_ues_are_selected_as_often_as_their_probability_says(name):
    selection, cell = find("selection", name).build({}, CONTEXT), cell_of()
    candidates = Candidates(cell, 1, lambda: gain_of(cell))
    probability = selection.probability(candidates)
    assert ((probability >= 0) & (probability <= 1)).all()
    often = np.zeros(cell.num_ue)
    for k in range(1000):
        ue, own = selection.draw(candidates, stream(1, "selection", k))
        assert (np.diff(ue) > 0).all()
        np.testing.assert_array_equal(own, probability[ue])
        assert abs(len(ue) - probability.sum()) <= 1
        often[ue] += 1
    assert np.abs(often / 1000 - probability).max() < 5 * np.sqrt(0.25 / 1000)


# ---- compressors ----


def compress(compressor, change, seed=1, own=None, bits_per_weight=None):
    bits = bits_per_weight or compressor.update_bits(len(change)) / len(change)
    return compressor(
        change,
        bits,
        lambda: stream(seed, "test"),
        own if own is not None else compressor.init(len(change)),
    )


@pytest.mark.parametrize("num_weights", [1, 255, 512, 5000])
@pytest.mark.parametrize("name", names("compressor"))
def test_a_compressor_is_pure_and_keeps_shape_and_zero(name, num_weights):
    compressor = find("compressor", name).build({}, CONTEXT)
    torch.manual_seed(3)
    change = torch.randn(num_weights) * 0.01
    before = change.clone()
    received = compress(compressor, change)[0].received
    again = compress(compressor, change)[0].received
    assert torch.equal(change, before)
    assert torch.equal(received, again)
    assert received.shape == change.shape
    assert received.dtype == change.dtype
    assert torch.isfinite(received).all()
    assert torch.equal(
        compress(compressor, torch.zeros(num_weights))[0].received, torch.zeros(num_weights)
    )
    assert 0 < compressor.update_bits(num_weights) <= 64 * num_weights + 256


@pytest.mark.parametrize("num_weights", [1, 2, 7, 8, 127, 128, 129, 256, 257, 3001])
@pytest.mark.parametrize("name", names("compressor"))
def test_the_bytes_are_what_is_received_and_as_many_as_the_bits_say(name, num_weights):
    compressor = find("compressor", name).build({}, CONTEXT)
    budgets = (None, 0.01, 0.3, 1.0, 2.5, 7.3, 20.0)
    for (kind, change), budget in itertools.product(updates_of(num_weights).items(), budgets):
        sent, _ = compress(compressor, change, bits_per_weight=budget)
        payload = sent.pack()
        assert 8 * len(payload) == sent.bits, (kind, budget)
        assert sent.bits <= 8 * np.ceil(compressor.update_bits(num_weights, budget) / 8), (
            kind,
            budget,
        )
        if budget is not None:  # no more than is planned, down to the least it can do with
            least = compressor.update_bits(num_weights, 1e-9)
            assert compressor.update_bits(num_weights, budget) <= max(budget * num_weights, least)
        received = compressor.unpack(payload, num_weights)
        assert received.dtype == torch.float32
        assert torch.equal(received.to(change).nan_to_num(1.5), sent.received.nan_to_num(1.5)), (
            kind,
            budget,
        )
        if kind == "not finite" and not compressor.init(
            num_weights
        ):  # the server must see that it is not
            assert not torch.isfinite(received).all()


@pytest.mark.parametrize("name", names("compressor"))
def test_bytes_that_no_device_makes_are_refused_in_one_line_or_harmless(name):
    compressor, rng = find("compressor", name).build({}, CONTEXT), np.random.default_rng(5)
    payload = compress(compressor, updates_of(3001)["heavy"])[0].pack()
    refused = []
    for trial in range(300):
        wrong = bytearray(payload)
        if trial % 3 == 0:  # another length, or nothing at all
            wrong = (
                wrong[: rng.integers(0, len(wrong))]
                if trial % 2
                else wrong + rng.bytes(rng.integers(3, 10**5))
            )
        elif trial % 3 == 1:
            for place in rng.integers(0, len(wrong), rng.integers(1, 20)):
                wrong[place] = rng.integers(0, 256)
        else:
            wrong = bytearray(rng.bytes(len(payload)))
        try:
            assert compressor.unpack(bytes(wrong), 3001).shape == (3001,)
        except AutoFLError as error:
            refused.append(str(error))
    assert len(refused) >= 90  # another length is always seen
    assert all(why.startswith("packed update: ") and "\n" not in why for why in refused)


@pytest.mark.parametrize("name", names("compressor"))
def test_what_a_compressor_loses_is_nothing_on_average_or_is_remembered(name):
    """By itself or, where it is for the way down, by the server, which sends the rest again."""
    compressor = find("compressor", name).build({}, CONTEXT)
    torch.manual_seed(4)
    change = torch.randn(3000) * 0.01
    own = compressor.init(3000)
    if own:  # error feedback: what was sent so far and what is remembered make up all there was
        total = torch.zeros_like(change)
        for seed in range(20):
            sent, own = compress(compressor, change, seed, own)
            total += sent.received
        torch.testing.assert_close(total + sum(own.values()), 20 * change, rtol=1e-3, atol=1e-4)
    elif hasattr(compressor, "losses"):
        rest = change
        for seed in range(20):
            received = compress(compressor, rest, seed)[0].received
            rest = (
                rest - float(rest @ received / (received @ received)) * received
            )  # the factor of a message down
        assert float(rest.norm()) < 1e-3 * float(change.norm())
    else:  # unbiased: the mean of many comes as near as chance allows
        many = torch.stack([compress(compressor, change, seed)[0].received for seed in range(400)])
        error = (many.mean(dim=0) - change).abs() / (many.std(dim=0) / 400**0.5 + 1e-9)
        often = (
            change.abs() > change.abs().median()
        )  # smaller ones may be zero in every draw, with no deviation
        assert float((error[often] < 4.0).float().mean()) > 0.99


@pytest.mark.parametrize("name", names("compressor"))
def test_compressed_updates_are_the_mean_of_what_each_ue_sends_alone(name, federated):
    compressor = find("compressor", name).build({}, CONTEXT)
    model = build(mlp, (784,), 10, stream(1, "init"))
    params = params_of(model, torch.float64)
    algorithm = find("algorithm", "per-fedavg").build({}, CONTEXT)
    batches = federated.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2)
    updates = make_engine("low_rank", model)(algorithm, params, batches, UE)
    num = sum(p.numel() for p in params.values())
    bits = np.full(len(UE), compressor.update_bits(num) / num)
    weight = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    mean = CompressedUpdates(updates, compressor, bits, 9, 2, ClientMemory()).mean(weight)
    slow = torch.zeros(num, dtype=torch.float64)
    loop = make_engine("loop", model)(algorithm, params, batches, UE)
    for row, change in loop:
        one, _ = compressor(
            change,
            bits[0],
            lambda ue=int(UE[row]): stream(9, "compression", 2, ue),
            compressor.init(num),
        )
        slow += weight[row] / weight.sum() * one.received
    off = (flat(mean) - flat(params) - slow).norm() / slow.norm()
    assert off < 0.02  # a rounding that falls the other way moves single weights, not the update


# ---- aggregators ----


@pytest.mark.parametrize("name", names("aggregator"))
def test_an_aggregate_does_not_depend_on_the_order_of_updates(name, rng):
    aggregator = find("aggregator", name).build({}, CONTEXT)
    sent = {"w": torch.randn(4, 3, dtype=torch.float64), "b": torch.randn(3, dtype=torch.float64)}
    stack = {
        key: p + 0.1 * torch.randn(7, *p.shape, dtype=torch.float64) for key, p in sent.items()
    }
    ue, weight = rng.permutation(12)[:7], rng.uniform(1.0, 2.0, 7)

    def aggregate(order):
        index = torch.from_numpy(order)
        updates = received(ue[order], {key: p[index] for key, p in stack.items()}, sent)
        return aggregator(sent, Arrived(updates, weight[order], np.full(7, 0.25), 12))

    first = aggregate(np.arange(7))
    assert {key: p.shape for key, p in first.items()} == {key: p.shape for key, p in sent.items()}
    assert all(torch.isfinite(p).all() for p in first.values())
    for _ in range(5):
        again = aggregate(rng.permutation(7))
        assert all(torch.equal(again[key], p) for key, p in first.items())


@pytest.mark.parametrize("name", names("aggregator"))
def test_updates_that_change_nothing_leave_the_model(name):
    aggregator = find("aggregator", name).build({}, CONTEXT)
    sent = {"w": torch.randn(5, dtype=torch.float64)}
    updates = received(np.arange(4), {"w": sent["w"].repeat(4, 1)}, sent)
    same = aggregator(sent, Arrived(updates, np.ones(4), np.full(4, 0.5), 12))
    torch.testing.assert_close(same["w"], sent["w"], rtol=1e-12, atol=0)


# ---- attacks ----


@pytest.mark.parametrize("name", names("attack"))
def test_an_attack_is_a_function_of_the_round_and_its_stream_and_leaves_the_honest_alone(name):
    attack = find("attack", name).build({}, CONTEXT)
    torch.manual_seed(5)
    honest, liars = torch.randn(9, 40), np.array([1, 4, 8])
    before = honest.clone()
    attacked = Attacked(honest, liars, torch.randn(3, 40))
    told, again = (attack(attacked, stream(1, "lies", 3)) for _ in range(2))
    assert told.shape == (3, 40)
    assert told.dtype == honest.dtype
    assert torch.equal(honest, before)
    assert torch.equal(told.nan_to_num(7.0), again.nan_to_num(7.0))


# ---- algorithms and the engines that serve them ----


@pytest.fixture(scope="module")
def small(few_digits, federated):
    data = federate(few_digits, federated.partition, torch.float64)
    model = build(mlp, (784,), 10, stream(1, "init"))
    return data, model, params_of(model, torch.float64)


STEPS = np.array([1, 3, 2, 1, 2])
"""Local steps of each UE."""


@pytest.mark.parametrize("engine", ["vmap", "low_rank"])
@pytest.mark.parametrize("name", names("algorithm"))
def test_every_engine_that_serves_an_algorithm_gives_what_the_loop_gives(small, name, engine):
    data, model, params = small
    algorithm = find("algorithm", name).build({}, CONTEXT)
    if engine == "low_rank" and pick_engine("auto", model, algorithm) != "low_rank":
        pytest.skip("not served")
    sent = algorithm.init(params).sent
    batches = data.draw(UE, NUM_SAMPLES, STEPS, seed=1, round_index=2)
    memories = {each: remembered(algorithm, sent) for each in ("loop", engine)}
    loop, fast = (
        make_engine(each, model)(algorithm, sent, batches, UE, memories[each])
        for each in ("loop", engine)
    )
    weight = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    for left, right in ((loop.mean(weight), fast.mean(weight)), (singles(loop), singles(fast))):
        for key in sent:
            torch.testing.assert_close(left[key], right[key], rtol=1e-9, atol=1e-12)
    if is_stateful(algorithm):
        for memory in memories.values():
            memory.turn()
        for ue in UE.tolist():
            left, right = (memory.read("client", ue) for memory in memories.values())
            for key in left:
                torch.testing.assert_close(left[key], right[key], rtol=1e-9, atol=1e-12)


def remembered(algorithm, sent):
    """A memory in which each UE has something to remember."""
    memory = ClientMemory()
    if is_stateful(algorithm):
        torch.manual_seed(11)
        for ue in UE.tolist():
            first = algorithm.client_init(sent)
            memory.write(
                "client", ue, {key: p + 0.01 * torch.randn_like(p) for key, p in first.items()}
            )
        memory.turn()
    return memory


def singles(updates):
    """All single updates, in the order of the rows."""
    changes = [shaped(row, updates.sent) for row in updates.table()]
    return {key: torch.stack([own[key] for own in changes]) for key in updates.sent}


@pytest.mark.parametrize("name", names("algorithm"))
def test_the_mean_of_single_updates_is_the_mean(small, name):
    data, model, params = small
    algorithm = find("algorithm", name).build({}, CONTEXT)
    sent = algorithm.init(params).sent
    batches = data.draw(UE, NUM_SAMPLES, STEPS, seed=1, round_index=2)
    updates = make_engine(pick_engine("auto", model, algorithm), model)(
        algorithm, sent, batches, UE, remembered(algorithm, sent)
    )
    share = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64) / 15.0
    mean, each = updates.mean(15.0 * share.numpy()), singles(updates)
    for key, p in sent.items():
        slow = p + torch.einsum("u,u...->...", share, each[key])
        torch.testing.assert_close(mean[key], slow, rtol=1e-10, atol=1e-13)
    assert max(float(each[key].abs().max()) for key in sent) > 1e-4  # somebody learned something


@pytest.mark.parametrize("name", names("algorithm"))
def test_the_server_keeps_what_it_sends_in_one_form(small, name):
    _, _, params = small
    algorithm = find("algorithm", name).build({}, CONTEXT)
    assert isinstance(algorithm, Algorithm)
    state = algorithm.init(params)
    assert all(torch.equal(state.params[key], p) for key, p in params.items())
    moved = algorithm.server_update(state, {key: p + 0.01 for key, p in state.sent.items()})
    for before, after in ((state.params, moved.params), (state.sent, moved.sent)):
        assert {key: p.shape for key, p in before.items()} == {
            key: p.shape for key, p in after.items()
        }
    assert all(torch.isfinite(p).all() for p in moved.params.values())


# ---- whole runs ----


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in OWN
        for name in names(kind)
        if (kind, name) not in {("data", "npz"), ("partition", "own")}
        and (
            kind != "attack" or name in ("label-flip", OWN["attack"])
        )  # one in the data, one in the updates
    ],
)
def test_a_run_takes_every_part_and_gives_the_same_bytes_twice(kind, name, tmp_path, monkeypatch):
    from autofl.data import find as find_data

    if kind == "data" and name in PARTS["data"] and find_data(name) is None:
        pytest.skip(f"{name} is not here")
    key = {"algorithm": "arm", "data": "data.name", "partition": "data.partition"}.get(
        kind, f"{kind}.name"
    )
    np.savetxt(
        tmp_path / "gains.csv", np.random.default_rng(2).exponential(1e-8, (40, 12)), delimiter=","
    )
    overrides = [
        f'{key}="{name}"',
        "cell.num_ue=12",
        "cell.distance={disc=250}",
        "simulation.num_selected=4",
        "stop.rounds=2",
        "evaluation.every=2",
        "evaluation.test_samples=20",
        "evaluation.train_samples=10",
        *(["data.labels=2"] if name == OWN["data"] else []),
        *(["link.levels=[[1.0, 0.0], [4.0, 15.0]]"] if (kind, name) == ("link", "table") else []),
        *(['compressor.name="quantise"'] if name == "adaquantfl" else []),
        *(["model.name=mlp"] if name == "cifar10" else []),
        *([f'channel.file="{tmp_path / "gains.csv"}"'] if name == "trace" else []),
        *([f'data.name="{OWN["data"]}"', "data.labels=2"] if name == "lenet5" else []),
    ]
    if name == "lenet5":
        pytest.skip("needs images; test_convolutions has them")
    settings = load_settings(overrides=overrides)
    first, again = (run(settings, tmp_path / folder) for folder in ("one", "two"))
    for file in ("rounds.csv", "ues.csv", "weights.safetensors", "config.toml"):
        assert (first.folder / file).read_bytes() == (again.folder / file).read_bytes(), file
    assert first.manifest["parts"][kind]["name"] == name
    if ":" in name:
        assert first.manifest["parts"][kind]["file"] == "own_parts.py"
        assert len(first.manifest["parts"][kind]["sha256"]) == 64
    assert np.isfinite(first.rounds["adapted_accuracy"][-1])
    settings = load_settings(
        first.folder / "config.toml", overrides[:1]
    )  # its own code must be named again
    repeated = run(settings, tmp_path / "three")  # a run repeats itself
    assert (repeated.folder / "rounds.csv").read_bytes() == (
        first.folder / "rounds.csv"
    ).read_bytes()


def test_a_planner_may_know_less_than_decides_decoding():
    """With a channel known a round late, some who send are not decoded, and they have paid for it."""
    from autofl.selection import Uniform
    from reference.networks import decided, network_of

    cell = replace(
        cell_of(), max_energy=np.array(1.0), max_power=np.array(0.05), distance=np.full(12, 2700.0)
    )
    channel = find("channel", OWN["channel"]).build()
    planner = find("planner", "exact").build()
    network = network_of(cell, channel, planner, Uniform(12))
    lost = 0
    for k in range(1, 15):
        now, _ = decided(network, k)
        assert not (now.decoded & ~now.sends).any()
        assert (now.cost.energy[now.sends] > 0).all()
        lost += int((now.sends & ~now.decoded).sum())
    assert lost > 0
