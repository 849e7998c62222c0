"""The best constants by grid search, against a slow reading of the same tables."""

import csv
import json
from dataclasses import asdict

import numpy as np
import pytest

from autofl.cli.main import run as run_cli
from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.jobs.run import run
from autofl.jobs.tuned import Constants, best_of, grid, ranked, times_of, trial_json, tune
from autofl.results import Results

pytestmark = pytest.mark.slow

SMALL = [
    "cell.num_ue=8",
    "simulation.num_selected=3",
    "simulation.device=cpu",
    "stop.rounds=14",
    "evaluation.every=1",
    "evaluation.test_samples=20",
    "learning.outer_lr=0.2",
    'compressor.name="quantise"',
]


def small(*more):
    return load_settings(overrides=[*SMALL, *more])


def slow_time(folder, target):
    """First simulated time at which the mean of the last three adapted accuracies is at the target."""
    seen = []
    with (folder / "rounds.csv").open() as file:
        for row in csv.DictReader(file):
            seen.append(float(row["adapted_accuracy"]))
            last = seen[-3:]
            if sum(last) / len(last) >= target - 1e-12:
                return float(row["sim_time"])
    return float("inf")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    tried = grid(num_samples=[5, 20], local_steps=[1, 4], bits=[2, 4])
    return tune(small(), tried, folder, seeds=[3, 4, 5], target=0.6), folder


def constants_of(arm):
    return Constants(**arm.arms[0])


def test_the_best_has_the_least_median_time_of_all(tuned):
    result, folder = tuned
    medians = {}
    for arm in ranked(result):
        constants = constants_of(arm)
        times = [slow_time(folder / f"{constants.name}-seed{seed}", 0.6) for seed in (3, 4, 5)]
        np.testing.assert_allclose(times_of(arm), times, rtol=1e-12)
        medians[constants] = sorted(times)[1]
    assert len(medians) == 8
    assert medians[best_of(result)] == min(medians.values()) < np.inf
    assert len(set(medians.values())) > 3
    assert [np.median(times_of(arm)) for arm in ranked(result)] == sorted(medians.values())


def test_every_run_has_its_constants_in_every_round(tuned):
    result, folder = tuned
    for constants in map(constants_of, result.by_arm()):
        with (folder / f"{constants.name}-seed3" / "ues.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["status"] != "infeasible"]
        assert {int(row["num_samples"]) for row in rows} <= {constants.num_samples}
        assert {int(row["local_steps"]) for row in rows} <= {constants.local_steps}
        assert all(int(float(row["bits_per_weight"])) == constants.bits for row in rows)
        assert {float(row["bandwidth"]) for row in rows} <= {1e6}


def test_constants_that_nobody_can_pay_for_are_reported(tuned):
    result, _ = tuned
    unheard = [arm for arm in result.by_arm() if not arm.values["heard"].any()]
    assert {(arm.arms[0]["num_samples"], arm.arms[0]["local_steps"]) for arm in unheard} == {
        (20, 4)
    }
    for row in map(trial_json, unheard):
        assert row["remark"] == "nobody is heard"
        assert row["median_time"] is None
        assert row["reached"] == 0


def test_a_run_takes_the_best_constants(tuned, tmp_path):
    result, _ = tuned
    best = best_of(result)
    done = run(best.applied(small(), 6), tmp_path / "run")
    sent = done.ues["num_samples"] > 0
    assert set(done.ues["num_samples"][sent].tolist()) == {best.num_samples}


def test_where_no_constants_reach_the_target_there_is_no_best():
    def made(times):
        measured = [{"time": t, "accuracy": 0.9, "heard": 1.0, "diverged": 0.0} for t in times]
        arms = [asdict(Constants(5, 1))] * len(times)
        return Results.of(arms, range(len(times)), measured, [""] * len(times), 0.99)

    assert best_of(made([np.nan, np.nan, 1.0])) is None
    assert best_of(made([2.0, np.nan, 1.0])) == Constants(5, 1)
    assert trial_json(made([2.0, np.nan, 1.0]))["median_time"] == 2.0


def test_an_arm_of_constants_is_tuned_too():
    one = Constants(7, 2, num_selected=4).applied(small('arm="fedavg-1"'), 9)
    assert (one.planner.name, one.planner.given["num_samples"]) == ("fixed", 7)
    assert one.planner.given["power"] == "computed"  # what the energy allows, unless it is set
    said = small('arm="fedavg-1"', 'planner.power="max"')
    assert Constants(7, 2).applied(said, 9).planner.given["power"] == "max"
    assert (one.learning.local_steps, one.simulation.num_selected, one.seed) == (2, 4, 9)
    sparse = Constants(7, 2, bits=1.5).applied(
        load_settings(overrides=['compressor.name="top-k"']), 9
    )
    assert sparse.planner.given["bits_per_weight"] == 1.5


def test_a_share_of_the_frequency_is_tried_and_carried_out(tmp_path):
    result = tune(
        small("stop.rounds=2"),
        grid([5], [1], frequency=[0.5, 1.0]),
        tmp_path,
        seeds=[3],
        target=0.6,
    )
    names = {constants_of(arm).name for arm in result.by_arm()}
    assert names == {"d5-tau1-f0.5", "d5-tau1-f1"}
    for share, hertz in ((0.5, 5e8), (1.0, 1e9)):
        with (tmp_path / f"d5-tau1-f{share:g}-seed3" / "ues.csv").open() as file:
            assert {float(row["cpu_frequency"]) for row in csv.DictReader(file)} == {hertz}


@pytest.mark.parametrize(
    ("values", "more", "says"),
    [
        ({"num_samples": [2]}, {}, "num_samples: must be from 3 .*got 2"),
        ({"num_samples": [5], "local_steps": [0]}, {}, "local_steps"),
        ({"num_samples": [5], "bits": [1]}, {}, "bits: must be from 2 to 16 .*got 1"),
        ({"num_samples": [5], "bits": [2.5]}, {}, "bits"),
        ({"num_samples": [5], "frequency": [1.5]}, {}, "frequency: must be > 0 and <= 1 .*got 1.5"),
        ({"num_samples": [5], "num_selected": [9]}, {}, "more than the 8 UEs"),
        ({"num_samples": []}, {}, "num_samples: the grid has no value"),
        ({"num_samples": [5]}, {"target": 1.5}, "target: 1.5"),
        ({"num_samples": [5]}, {"seeds": []}, "seeds"),
        ({"num_samples": [5]}, {"seeds": [1, 1]}, "seeds"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(tmp_path, values, more, says):
    with pytest.raises(AutoFLError, match=says):
        tune(small(), grid(**values), tmp_path / "none", **{"seeds": [1], "target": 0.6, **more})
    assert not (tmp_path / "none").exists()


def test_bits_without_a_compressor_are_refused(tmp_path):
    with pytest.raises(AutoFLError, match=r"need a compressor; set compressor\.name"):
        tune(load_settings(), grid([5], bits=[4]), tmp_path / "none", seeds=[1], target=0.6)


def test_the_command_shows_a_table_and_writes_settings_that_simulate_takes(tmp_path, capsys):
    changes = [word for change in SMALL for word in ("--set", change)]
    argv = [
        "tune",
        "--samples",
        "5",
        "--steps",
        "1,4",
        "--seeds",
        "2",
        "--target",
        "0.5",
        "--workers",
        "2",
        *changes,
    ]
    assert run_cli([*argv, "--out", str(tmp_path / "t"), "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["best"] == told["trials"][0]
    assert told["best"]["reached"] == 2
    assert json.loads((tmp_path / "t" / "tuned.json").read_text()) == told
    assert "best: d5" in err
    best = load_settings(told["settings"])
    assert best.seed == 3  # the first that did not tune
    assert best.stop.target_accuracy is None
    alone = tune(
        small(), grid([5], [1, 4]), tmp_path / "alone", seeds=[1, 2], target=0.5
    )  # one worker, the same
    assert [trial_json(arm) for arm in ranked(alone)] == told["trials"]
    assert (
        run_cli(
            ["simulate", told["settings"], "--out", str(tmp_path / "s"), "--set", "stop.rounds=2"]
        )
        == 0
    )
    capsys.readouterr()
    assert run_cli([*argv, "--out", str(tmp_path / "t")]) == 2
    assert "a run is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--samples", "5,many"], "--samples 5,many: write whole numbers"),
        (["--bits", "few"], "--bits few: write numbers"),
        (["--seeds", "0"], "--seeds 0"),
        (["--samples", ","], "--samples ,: write whole numbers"),
        (["--target", "2"], "target: 2"),
    ],
)
def test_the_command_refuses_nonsense_in_one_line(tmp_path, capsys, argv, says):
    assert run_cli(["tune", *argv, "--out", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("autofl: ")
    assert says in said
