"""The Python API: objects in, runs out, and the same numbers as settings give."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import autofl as fl
from autofl.experiments.cell import build_cell
from autofl.jobs.run import run


@pytest.fixture(scope="module")
def data():
    return fl.load("mnist5k").federate(fl.by_labels(5), num_ue=20, seed=1)


def test_the_cell_of_a_disc_is_that_of_the_settings():
    ours, theirs = (
        fl.Cell.disc(num_ue=20, radius=200, seed=3),
        build_cell(fl.load_settings(overrides=["seed=3"])),
    )
    for name in fl.Cell.PER_UE:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    assert (
        fl.Cell.disc(num_ue=4, max_power=0.02, cycles_per_sample=1e5).max_power.tolist()
        == [0.02] * 4
    )
    with pytest.raises(fl.AutoFLError):
        fl.Cell.disc(num_ue=0)
    with pytest.raises(fl.AutoFLError):
        fl.Cell.disc(num_ue=4, max_power=-1.0)


def test_a_comparison_gives_the_bytes_that_settings_give(data, tmp_path):
    settings = fl.load_settings(overrides=["stop.rounds=6", "evaluation.every=3"])
    theirs = run(settings, tmp_path / "settings")
    arm = fl.Arm(fl.PerFedAvg(0.03, 0.07), fl.PaperPlanner(0.02), fl.Uniform(5))
    (ours,) = fl.compare(
        {"AutoFL": arm},
        fl.Cell.disc(seed=1),
        data,
        fl.mlp,
        rounds=6,
        seeds=[1],
        evaluate_every=3,
        folder=tmp_path / "objects",
        progress=False,
    )
    for file in ("rounds.csv", "ues.csv", "weights.safetensors"):
        assert (ours.folder / file).read_bytes() == (theirs.folder / file).read_bytes(), file


def test_runs_are_a_table_and_a_figure(data):
    arms = {
        "AutoFL": fl.Arm(fl.PerFedAvg(0.03, 0.07), fl.ExactPlanner(0.02)),
        "mine": fl.Arm(fl.FedAvg(0.07), fl.FixedPlanner(40)),
    }
    told = []
    runs = fl.compare(
        arms,
        fl.Cell.disc(radius=300),
        data,
        fl.mlp,
        rounds=4,
        seeds=2,
        evaluate_every=2,
        progress=told.append,
    )
    assert len(runs) == 4
    assert list(runs.by_arm()) == ["AutoFL", "mine"]
    table = runs.table(target=0.3)
    assert [row[0] for row in table.rows] == ["AutoFL", "mine"]
    assert "<table" in table._repr_html_()
    assert "AutoFL" in repr(runs)
    assert isinstance(runs.plot("sim_time", "adapted_accuracy"), Figure)
    assert {each.label for each in told} == {
        f"{arm} seed {seed}" for arm in arms for seed in (1, 2)
    }
    assert runs[0].manifest["parts"]["planner"]["name"] == "ExactPlanner(epsilon=0.02)"
    assert len(runs[:2]) == 2


def test_an_arm_can_be_had_by_its_name(data, tmp_path):
    assert fl.arm("autofl") == fl.Arm(fl.PerFedAvg(0.03, 0.07), fl.PaperPlanner(0.02))
    rival = fl.arm("per-fedavg", "planner.num_samples=7", "simulation.num_selected=3")
    assert (rival.planner, rival.selection) == (fl.FixedPlanner(7, "max"), fl.Uniform(3))
    file = tmp_path / "mine.toml"
    file.write_text('title = "Mine"\nalgorithm = "fedprox"\nlearning = {mu = 0.3}\n')
    assert fl.arm(str(file)) == fl.arm("fedprox", "learning.mu=0.3")
    arms = {"AutoFL-J": fl.arm("autofl-j"), "AutoFL": fl.arm("autofl")}
    runs = fl.compare(
        arms, fl.Cell.disc(), data, fl.mlp, rounds=2, seeds=1, folder=tmp_path, progress=False
    )
    assert runs[0].ues["bits_per_weight"].max() < 32.0 == runs[1].ues["bits_per_weight"].max()
    with pytest.raises(fl.AutoFLError, match="arm 'sgd' is unknown"):
        fl.arm("sgd")


class OddSize:
    """A compressor whose updates have a size that single precision cannot hold."""

    def update_bits(self, num_weights, bits_per_weight=None):
        return float(2**24 + 1)

    def init(self, num_weights):
        return {}

    def __call__(self, change, bits_per_weight, randomness, own):
        return fl.Sent(change, self.update_bits(len(change)), lambda: b""), own

    def unpack(self, payload, num_weights):
        return torch.zeros(num_weights)


def test_a_simulation_can_be_played_round_by_round(data):
    arm = fl.Arm(fl.FedAvg(0.07), fl.FixedPlanner(10, "max"), fl.Uniform(4))
    sim = fl.simulation_of(arm, fl.Cell.disc(), data, fl.mlp, stop=fl.Stop(2))
    records = [record for record, _ in fl.simulate(sim)]
    assert [record.k for record in records] == [0, 1, 2]
    assert len(records[1].ue) == 4
    assert sim.cell.update_bits[0] == 32 * 79_510
    odd = fl.Arm(fl.FedAvg(0.07), fl.FixedPlanner(10), compressor=OddSize())
    assert (
        fl.simulation_of(odd, fl.Cell.disc(), data, fl.mlp).cell.update_bits[0] == 2**24 + 1
    )  # no float32 on the way
    np.testing.assert_array_equal(sim.cell.data_size, data.partition.train_size)


def test_arms_whose_names_have_no_letters_keep_a_folder_each(data, tmp_path):
    arms = {
        "β = 0.07": fl.Arm(fl.FedAvg(0.07), fl.FixedPlanner(5)),
        "α = 0.07": fl.Arm(fl.FedAvg(0.01), fl.FixedPlanner(5)),
    }
    runs = fl.compare(
        arms, fl.Cell.disc(), data, fl.mlp, rounds=1, seeds=1, folder=tmp_path, progress=False
    )
    assert len({run.folder for run in runs}) == 2
    assert list(runs.by_arm()) == list(arms)


def test_nonsense_is_refused(data):
    arm = fl.Arm(fl.FedAvg(0.07), fl.FixedPlanner(10))
    with pytest.raises(fl.AutoFLError, match="no arms"):
        fl.compare({}, fl.Cell.disc(), data, fl.mlp)
    with pytest.raises(fl.AutoFLError, match="the cell has 7 UEs, the data 20"):
        fl.compare({"mine": arm}, fl.Cell.disc(num_ue=7), data, fl.mlp, progress=False)
    with pytest.raises(AttributeError):
        fl.no_such_name  # noqa: B018


def test_parts_are_found_by_the_names_that_settings_use():
    prox = fl.part("algorithm", "fedprox", outer_lr=0.07, mu=0.3)
    assert (prox.outer_lr, prox.mu) == (0.07, 0.3)
    assert fl.part("planner", "exact") == fl.ExactPlanner()
    assert fl.part("planner", "contracts.own_parts:Greedy", wanted=7).wanted == 7
    for kind, name, settings in (
        ("planner", "exakt", {}),
        ("planner", "exact", {"epsilonn": 0.1}),
        ("planner", "exact", {"epsilon": "much"}),
        ("planner", "exact", {"epsilon": 0.9}),
        ("planner", "contracts.own_parts:None_", {}),
        ("algorithm", "fedprox", {"mu": 0.1}),
    ):
        with pytest.raises(fl.AutoFLError):
            fl.part(kind, name, **settings)
