"""The joint planner's studies: their arms, what is read off made-up runs by hand, and a whole
reproduction, small.
"""

import json
import math
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from autofl.cli.main import run as run_cli
from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_planner
from autofl.jobs.tuned import Constants
from autofl.records import Run, read_run
from autofl_paper.joint import (
    AUTOFL_J,
    CELLS,
    CHOICE,
    JOINT,
    JOINT_STUDIES,
    SCALES,
    TUNED,
    TUNED_MAML,
    TUNING_SEED,
    YANG,
    arms_of,
    carried_out,
    deadline,
    studies_named,
    tune_command,
)
from autofl_paper.joint_page import page_of, quartiles
from autofl_paper.joint_results import limits, read_joint
from autofl_paper.joint_tables import (
    FASTEST,
    Times,
    arm_table,
    choice_table,
    limits_of,
    median_ratio,
    ratio_table,
    times_of,
)
from autofl_paper.page import fill
from autofl_paper.results import Results, Row, read_results, write_results
from autofl_paper.study import with_seeds

NAN = math.nan
DOCS = Path(__file__).parents[2] / "docs"


def times(*pairs):
    return Times(*np.array(pairs, dtype=np.float64).T)


@pytest.fixture
def every_data_set_is_here(monkeypatch):
    monkeypatch.setattr("autofl_paper.study.find", lambda name: name)


def test_a_paired_ratio_worked_by_hand():
    """Ratios 2, 4, 6. A resampled median is 2 or 6 with probability 7/27 each, so the interval is
    their range.
    """
    ratio = median_ratio(times((1, 9), (2, 9), (3, 9)), times((2, 9), (8, 9), (18, 20)))
    assert (ratio.median, ratio.low, ratio.high) == (4.0, 2.0, 6.0)
    assert (ratio.reached, ratio.reached_other, ratio.seeds, ratio.pairs, ratio.is_least) == (
        3,
        3,
        3,
        3,
        False,
    )
    assert str(ratio) == "4.00 [2.00, 6.00]"


def test_the_interval_of_seven_seeds_is_second_to_sixth():
    """P(at least 4 of 7 draws are among the k smallest) is 1 % for k = 1 and 10.5 % for k = 2."""
    ones = times(*[(1, 1)] * 7)
    ratio = median_ratio(ones, times(*[(value, 9) for value in (4, 1, 7, 2, 6, 3, 5)]))
    assert (ratio.median, ratio.low, ratio.high) == (4.0, 2.0, 6.0)


def test_a_run_that_does_not_get_there_counts_against_the_arm_that_is_praised():
    slow_fails = median_ratio(times((1, 1), (1, 1), (1, 1)), times((2, 2), (NAN, 30), (NAN, 50)))
    assert slow_fails.median == 30.0  # at least: it takes longer than until its last evaluation
    assert slow_fails.is_least
    assert str(slow_fails).startswith("≥ 30.0 [")
    fast_fails = median_ratio(times((1, 1), (NAN, 5), (NAN, 5)), times((2, 2), (3, 3), (4, 4)))
    assert (fast_fails.median, fast_fails.high, fast_fails.is_least) == (0.0, 2.0, False)
    assert (fast_fails.reached, fast_fails.reached_other) == (1, 3)
    beyond = median_ratio(times((1, 1), (1, 1), (1, 1)), times((2, 2), (3, 3), (NAN, 50)))
    assert (beyond.median, beyond.is_least) == (
        3.0,
        False,
    )  # the median does not depend on how long it would take
    neither = median_ratio(times((NAN, 1), (1, 1)), times((NAN, 2), (7, 7)))
    assert (neither.median, neither.pairs, neither.seeds) == (7.0, 1, 2)
    assert str(median_ratio(times((NAN, 1)), times((NAN, 2)))) == "–"


def made_up(name, told):
    """A study from {arm: [(time to 85 %, time to 90 %, last, energy), ...]}."""
    names = ("time_85", "time_90", "last", "energy_85")
    rows = []
    for arm, runs in told.items():
        for seed, quantities in enumerate(runs, start=1):
            values = dict(zip(names, quantities, strict=True))
            values |= {"rounds_85": quantities[0], "rounds_90": quantities[1], "heard": 0.5}
            rows.append(Row("", name, arm, 0, seed, {**values, "energy_heard": quantities[3] / 10}))
    return Results(name, {"targets": [0.85, 0.90]}, rows)


def test_the_tables_of_a_made_up_study():
    study = made_up(
        "joint-physical",
        {
            "AutoFL": [(10, NAN, 40, 0.6), (12, 30, 30, 0.8), (20, NAN, 50, 1.0)],
            AUTOFL_J: [(0.1, 0.5, 0.5, 0.06), (0.2, 0.4, 0.4, 0.04), (0.1, NAN, 0.9, 0.1)],
        },
    )
    medians = {row[0]: row[1:] for row in arm_table(study).rows}
    assert medians["AutoFL"][:3] == ["12", "– (1 of 3)", "–"]
    assert medians[AUTOFL_J][:2] == ["0.1", "0.5 (2 of 3)"]
    assert medians["AutoFL"][3:] == ["0.8", "50"]
    ((arm, other, first, second, energy),) = ratio_table(study).rows
    assert (arm, other) == (AUTOFL_J, "AutoFL")
    assert first == "100.0 [60.0, 200.0]"
    assert second.startswith(
        "≥ 77.5 [75.0, 80.0]"
    )  # 30/0.4, at least 40/0.5; the third seed says nothing
    assert energy == "10"
    assert ratio_table(study).headings[-1] == "energy to 85 %, share [%]"
    assert arm_table(study).headings[1] == "to 85 % [s]"


def test_the_choice_stands_beside_the_constants_that_reach_the_second_target_first():
    told = {CHOICE: [(1, 2, 2, 1), (1, 2, 2, 1)],
            "slow": [(1, 9, 9, 1), (1, 9, 9, 1)],
            "quick": [(2, 5, 5, 1), (4, 5, 5, 1)]}  # fmt: skip
    (row,) = choice_table(made_up("joint-choice", told)).rows
    assert list(row) == ["", "1 / 2", "quick", "3 / 5", "2.50 [2.50, 2.50]"]


def test_limits_and_divergence_are_counted_over_all_runs_of_a_study():
    study = made_up("joint-paper", {"AutoFL": [(1, 2, 2, 1), (1, 2, 2, 1)]})
    for row in study.rows:
        row.values.update(checked=700.0, violations=0.0, diverged=float(row.seed == 1))
    told = limits_of(study)
    assert told == "No plan broke a limit: 0 of 1,400. Runs that diverged: 1 of AutoFL."
    study.rows[0].values.update(violations=3.0, diverged=0.0)
    assert limits_of(study) == "Plans broke limits: 3 of 1,400. Runs that diverged: none."


def test_the_page_is_what_the_committed_results_give():
    page = (DOCS / "joint-results.md").read_text(encoding="utf-8")
    assert fill(page, page_of(DOCS / "results" / "joint", None).blocks, "results/joint/") == page
    assert "Not measured yet." not in page


def test_the_fastest_of_the_four_is_taken_seed_by_seed():
    told = {"AutoFL": [(5, 9, 9, 1), (NAN, NAN, 30, 1)], "FedAvg-2": [(7, 8, 8, 1), (NAN, NAN, 20, 1)],
            AUTOFL_J: [(1, 1, 1, 1), (1, 1, 1, 1)]}  # fmt: skip
    study = made_up("joint-cifar10", told)
    fastest = times_of(study, FASTEST, 0.90)
    np.testing.assert_array_equal(fastest.time, [8.0, NAN])
    np.testing.assert_array_equal(fastest.last, [8.0, 20.0])
    assert {row[1] for row in ratio_table(study).rows} == {FASTEST}


def a_run(tmp_path, ues, config=()):
    """A made-up run of three evaluated rounds after the start, two UEs selected in each."""
    settings = load_settings(
        overrides=["cell.num_ue=2", "simulation.num_selected=2", *config]
    ).resolved()
    rounds = {"round": np.arange(4), "sim_time": np.array([0.0, 1.0, 2.0, 3.0]),
              "round_time": np.array([0.0, 1.0, 1.0, 1.0]), "energy": np.array([0.0, 4e-3, 5e-3, 6e-3]),
              "adapted_accuracy": np.array([0.1, 0.8, 0.9, 0.85])}  # fmt: skip
    columns = {"round": np.repeat([1, 2, 3], 2), "ue": np.tile([0, 1], 3), "num_samples": np.full(6, 5),
               "tx_power": np.full(6, 0.005), "cpu_frequency": np.full(6, 5e8), "bandwidth": np.full(6, 1e6),
               "energy": np.array([2e-3, 2e-3, 3e-3, 2e-3, 3e-3, 3e-3]), "local_steps": np.full(6, 2),
               "bits_per_weight": np.full(6, 0.5), "decoded": np.array([1, 0, 1, 1, 1, 1])}  # fmt: skip
    return Run(tmp_path, settings.table(), {"stop": "rounds"}, rounds, {**columns, **ues}, {})


def test_what_is_read_off_a_made_up_run(tmp_path):
    """Smoothed accuracies 0.1, 0.45, 0.6, 0.85: 60 % after 2 s and two rounds, 90 % never."""
    values, _ = read_joint(a_run(tmp_path, {}), (0.6, 0.9), (0.45, 0.9))
    assert values["time_45"] == 1.0
    assert (values["time_60"], values["rounds_60"], values["last"]) == (2.0, 2.0, 3.0)
    assert values["energy_60"] == pytest.approx(9e-3)
    assert math.isnan(values["time_90"])
    assert math.isnan(values["energy_90"])
    assert values["energy_heard"] == pytest.approx((2e-3 + 3e-3 + 2e-3) / 3)
    assert values["heard"] == pytest.approx(5 / 6)
    assert (values["checked"], values["violations"]) == (6.0, 0.0)
    assert (values["energy_share"], values["power_share"]) == pytest.approx((1.0, 0.5))
    assert (values["local_steps"], values["frequency_share"], values["bits_per_weight"]) == (
        2.0,
        0.5,
        0.5,
    )


@pytest.mark.parametrize(
    ("column", "values", "violations"),
    [
        ("energy", [2e-3, 3.001e-3, 2e-3, 2e-3, 2e-3, 2e-3], 1),
        ("tx_power", [0.01, 0.01, 0.0101, 0.0101, 0.01, 0.01], 2),
        ("cpu_frequency", [1.01e9, 1e9, 1e9, 1e9, 1e9, 9e7], 2),
        ("bandwidth", [1.5e6, 0.5e6, 1.5e6, 0.6e6, 1e6, 1e6], 2),
    ],
)
def test_every_limit_that_is_broken_is_counted(tmp_path, column, values, violations):
    assert limits(a_run(tmp_path, {column: np.array(values)}))["violations"] == violations
    silent = {column: np.array(values), "num_samples": np.zeros(6, np.int64)}
    assert (
        limits(a_run(tmp_path, silent))["checked"]
        == limits(a_run(tmp_path, silent))["violations"]
        == 0
    )


def test_each_ue_is_held_against_its_own_budget(tmp_path):
    own = ["cell.max_energy=[2e-3, 3e-3]"]
    assert limits(a_run(tmp_path, {}, own))["violations"] == 2  # UE 0 spends 3 mJ in rounds 2 and 3


@pytest.mark.usefixtures("every_data_set_is_here")
@pytest.mark.parametrize("study", JOINT_STUDIES)
def test_every_arm_can_be_set_up_and_no_two_are_the_same(study):
    seen = set()
    for arm in JOINT_STUDIES[study](SCALES["full"]):
        settings = load_settings(overrides=arm.overrides).resolved()
        build_planner(settings)
        assert settings.data.name == ("cifar10" if study == "joint-cifar10" else "mnist")
        assert (settings.data.labels, settings.cell.count) == (5, 20)
        assert settings.simulation.num_selected == 5 or study == "joint-choice"
        seen.add((arm.reading, str(settings)))
        assert arm.num_seeds < TUNING_SEED
    assert len(seen) == len(JOINT_STUDIES[study](SCALES["full"]))


def test_rivals_have_the_update_compressor_and_steps_of_autofl_j():
    joint = load_settings(overrides=arms_of("physical")[AUTOFL_J]).resolved()
    for name in (TUNED_MAML, YANG, "FedCS"):
        rival = load_settings(overrides=arms_of("physical")[name]).resolved()
        assert rival.algorithm == joint.algorithm
        assert rival.compressor.name == joint.compressor.name == "entropy"
        steps = TUNED["physical", "autofl-j"].local_steps
        assert rival.learning == joint.learning.model_copy(update={"local_steps": steps})
    quantised = load_settings(overrides=arms_of("physical")["AdaQuantFL"]).resolved()
    assert (quantised.compressor.name, quantised.learning.split) == (
        "quantise",
        joint.learning.split,
    )


def test_constants_are_carried_out_as_tune_does():
    constants = Constants(7, 3, 0.4, frequency=0.6)
    told = load_settings(overrides=carried_out(constants, "autofl-j"))
    asked = constants.applied(
        load_settings(overrides=["arm=autofl-j", "compressor.name=entropy"]), 1
    )
    planners = [
        replace(build_planner(settings), local_steps=None) for settings in (told, asked)
    ]  # the run's are 3
    assert planners[0] == planners[1]
    for section in ("learning", "compressor"):
        assert getattr(told.resolved(), section) == getattr(asked.resolved(), section)
    assert deadline(Constants(10, 2, 1.0)) == pytest.approx(
        1.2e5 * 20 / 1e9 + 79_510 / (1e6 * math.log2(1001)), rel=1e-3
    )


@pytest.mark.parametrize("cell", sorted({cell for cell, _ in TUNED}))
def test_the_command_that_tunes_is_one_that_can_be_typed(cell):
    words = shlex.split(tune_command(cell, "autofl-j"))
    overrides = [after for word, after in pairwise(words) if word == "--set"]
    settings = load_settings(overrides=[*overrides, "arm=autofl-j"])
    assert settings.seed == TUNING_SEED
    assert load_settings(overrides=CELLS[cell]).cell == settings.cell


def test_names_and_seeds():
    assert studies_named(["joint"]) == [name for name in JOINT_STUDIES if name != "joint-cifar10"]
    assert studies_named(["joint-mixed", "joint-paper"]) == ["joint-paper", "joint-mixed"]
    with pytest.raises(
        AutoFLError, match="joint-papr: no such study; there are joint, joint-paper"
    ):
        studies_named(["joint-papr"])
    assert with_seeds(JOINT, SCALES["full"], 3).few_seeds == 3
    with pytest.raises(AutoFLError, match="later ones tune constants"):
        with_seeds(JOINT, SCALES["full"], TUNING_SEED)


def test_the_middle_half_of_the_seeds():
    low, middle, high = quartiles(
        np.array([[1.0, 1.0], [2.0, NAN], [3.0, NAN], [4.0, 2.0], [5.0, NAN]])
    )
    np.testing.assert_array_equal(
        np.array([low, middle, high]), [[2.0, 2.0], [3.0, np.inf], [4.0, np.inf]]
    )


def test_results_are_written_and_read_back_to_the_same(tmp_path):
    study = made_up("joint-tight", {"AutoFL": [(1.5, NAN, 3.0, 0.1)]})
    write_results(study, tmp_path)
    again = read_results(tmp_path, JOINT_STUDIES)["joint-tight"]
    assert repr(again.rows) == repr(study.rows)
    (tmp_path / "joint-tight.csv").write_text("{}")
    with pytest.raises(AutoFLError, match=r"joint-tight\.csv: not readable results"):
        read_results(tmp_path, JOINT_STUDIES)


@pytest.fixture
def only_mnist_5k(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOFL_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))


def is_plain(config):
    """Whether a run belongs to AutoFL or AutoFL-J of the paper's cell."""
    cell = config["cell"]
    return (
        config["planner"]["name"] in ("paper", "joint")
        and cell["overhead"] == 0
        and "downlink_power" not in cell
    )


@pytest.mark.slow
@pytest.mark.usefixtures("only_mnist_5k")
def test_a_small_reproduction_gives_tables_a_picture_and_a_page_and_goes_on(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--scale", "smoke", "--device", "cpu", "--workers", "1", "--out", str(out)]
    assert run_cli(["reproduce", "joint-paper", "joint-besides", *words]) == 0
    shown, said = capsys.readouterr()
    assert "MNIST-5k is used instead" in said
    assert "22 runs, 22 of them to be made" in said
    assert "about 1 min" in said
    for text in ("to 30 %", "10 ms of overhead", "No plan broke a limit: 0 of "):
        assert text in shown
    assert (out / "joint" / "joint.png").stat().st_size > 15_000
    report = (out / "joint" / "report.md").read_text()
    assert "![Accuracy against time](joint.png)" in report
    assert "autofl tune --arm autofl-j" in report
    assert run_cli(["reproduce", "joint-paper", "--json", *words]) == 0
    shown, said = capsys.readouterr()
    assert "joint-paper: its results are in" in said
    told = json.loads(shown)
    assert list(told) == ["joint-paper"]
    assert told["joint-paper"]["limits"].startswith("No plan broke a limit: 0 of ")
    against = {
        (ratio["arm"], ratio["against"], ratio["target"]): ratio
        for ratio in told["joint-paper"]["ratios"]
    }
    by_hand = []
    for seed in (1, 2):
        first = {}
        for algorithm in ("autofl", "autofl-j"):
            runs = [read_run(path) for path in (out / "runs").glob(f"{algorithm}-seed{seed}-*")]
            (run,) = [run for run in runs if is_plain(run.config)]
            seen = run.rounds["adapted_accuracy"]
            smooth = np.array([seen[max(0, k - 2) : k + 1].mean() for k in range(len(seen))])
            first[algorithm] = run.rounds["sim_time"][np.argmax(smooth >= 0.3)]
        by_hand.append(first["autofl"] / first["autofl-j"])
    assert against[AUTOFL_J, "AutoFL", 0.3]["median"] == pytest.approx(np.mean(by_hand), rel=1e-5)
    page = tmp_path / "page.md"
    page.write_text("Words.\n<!-- joint-paper-ratios -->\n<!-- end joint-paper-ratios -->\n")
    assert run_cli(["reproduce", "--from", str(out / "joint"), "--page", str(page)]) == 0
    assert "| AutoFL-J | AutoFL |" in page.read_text()


@pytest.mark.usefixtures("only_mnist_5k")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["joint-papr"], "no such study"),
        (["joint", "fig2b"], "not both"),
        (["joint-cifar10"], "needs cifar10"),
        (["joint", "--scale", "full"], "needs MNIST"),
        (["joint", "--seeds", "0"], "--seeds 0"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    assert run_cli(["reproduce", *words]) == 2
    assert says in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "runs").exists()
