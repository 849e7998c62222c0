"""Own parts that do what no part may: one line that names the part, never a wrong number or a
traceback.
"""

import dataclasses

import numpy as np
import pytest

import autofl as fl
from autofl.channels import PathLoss, Rayleigh
from autofl.cli.main import run as autofl
from autofl.compressors.quantise import Quantise
from autofl.config import load_settings
from autofl.experiments.build import build_simulation
from reference.networks import decided, network_of

CELL = fl.Cell.disc(num_ue=6, radius=100.0)


class Wrong(fl.Memoryless):
    """An exact plan with one decision of UE 2 changed."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def __call__(self, cell, channel_gain, memory):
        plan, memory = fl.ExactPlanner()(cell, channel_gain, memory)
        changed = getattr(plan, self.name).copy().astype(float)
        changed[2] = self.value
        kind = getattr(plan, self.name).dtype
        return dataclasses.replace(plan, **{self.name: changed.astype(kind)}), memory


def play(planner, selection=None):
    channel = PathLoss(Rayleigh(40.0))
    return decided(network_of(CELL, channel, planner, selection or fl.Uniform(6)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tx_power", -0.001),
        ("tx_power", np.nan),
        ("tx_power", 100.0),
        ("num_samples", -1),
        ("num_samples", 10**6),
        ("local_steps", 0),
        ("bandwidth", 0.0),
        ("bandwidth", np.nan),
        ("cpu_frequency", -1e9),
        ("cpu_frequency", np.inf),
        ("bits_per_weight", 0.0),
        ("weight", -1.0),
        ("weight", np.nan),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_by_name(name, value):
    with pytest.raises(fl.AutoFLError, match=f"planner Wrong: UE 2: {name}"):
        play(Wrong(name, value))
    play(fl.ExactPlanner())  # which is none


class Unsorted(fl.Selection):
    def probability(self, candidates):
        return np.full(6, 0.5)

    def draw(self, candidates, rng):
        return fl.Selected(np.array([3, 1]), np.array([0.5, 0.5]))


class Nobody(fl.Selection):
    def probability(self, candidates):
        return np.zeros(6)


def test_a_selection_out_of_order_is_refused_and_an_empty_one_is_a_round_of_nothing():
    with pytest.raises(fl.AutoFLError, match="selection Unsorted"):
        play(fl.ExactPlanner(), Unsorted())
    this_round, _ = play(fl.ExactPlanner(), Nobody())
    assert len(this_round.ue) == 0
    assert this_round.cost.time == 0.0


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        (
            lambda: fl.Arm(fl.ExactPlanner(), fl.FedAvg(0.1)),
            "algorithm: ExactPlanner has no client_update",
        ),
        (lambda: fl.Arm(fl.FedAvg(0.1), fl.ExactPlanner), "planner: got the class ExactPlanner"),
        (lambda: fl.Arm(fl.FedAvg(0.1), "exact"), "planner: str has no init"),
        (
            lambda: fl.Arm(fl.FedAvg(0.1), fl.ExactPlanner(), Quantise(4)),
            "selection: Quantise has no probability",
        ),
        (
            lambda: fl.Arm(fl.FedAvg(0.1), fl.ExactPlanner(), aggregator=fl.Mean),
            "aggregator: got the class Mean",
        ),
        (
            lambda: fl.Arm(fl.FedAvg(0.1), fl.ExactPlanner(), compressor="top-k"),
            "compressor: str has no update_bits",
        ),
    ],
)
def test_an_arm_is_checked_when_it_is_made(arm, words):
    with pytest.raises(fl.AutoFLError, match=words):
        arm()


def test_a_compressor_given_as_an_object_decides_the_bits():
    settings = load_settings(overrides=["stop.rounds=1"])
    sim = build_simulation(settings, compressor=Quantise(4))
    assert sim.cell.update_bits[0] == 4 * 79_510 + 16 * 311
    assert sim.cell.bits_per_weight[0] < 5


OWN = """
import numpy as np
from autofl.planner import ExactPlanner, Memoryless

class Fails(Memoryless):
    def __call__(self, cell, gain, memory):
        return {}["missing"]

class OnlyPlan(Memoryless):
    def __call__(self, cell, gain, memory):
        return ExactPlanner()(cell, gain, memory)[0]

class NoInit:
    def __call__(self, cell, gain, memory):
        return None

class Leaves:
    def __init__(self):
        raise SystemExit(0)
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Fails", "KeyError in own_bad.py, line 7: 'missing'"),
        ("OnlyPlan", "planner OnlyPlan: it must give a Plan and its memory"),
        ("NoInit", "NoInit has no init"),
        ("Leaves", "SystemExit"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_own_code_that_fails_on_the_way_ends_in_one_line(
    tmp_path, monkeypatch, capsys, name, words, command
):
    (tmp_path / "own_bad.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert autofl([command, "--planner", f"own_bad:{name}", "--set", "stop.rounds=2"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert words in said[-1]
    assert not any("Traceback" in line for line in said)


def test_a_run_from_objects_cannot_be_mistaken_for_one_from_settings(tmp_path, capsys):
    data = fl.load("mnist5k").federate(fl.iid(), num_ue=6, seed=1)
    arms = {"mine": fl.Arm(fl.FedAvg(0.07), fl.FixedPlanner(5), fl.Uniform(2))}
    (run,) = fl.compare(
        arms, CELL, data, fl.mlp, rounds=1, seeds=1, folder=tmp_path / "runs", progress=False
    )
    assert autofl(["simulate", str(run.folder / "config.toml")]) == 2
    assert "made from Python objects" in capsys.readouterr().err
