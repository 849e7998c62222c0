"""Each decision is named with its reason, by every door; what the user fixed says so."""

import json

import pytest

from autofl.config import dump_settings, load_settings, parse_settings
from autofl.errors import AutoFLError
from autofl.experiments.build import build_algorithm, build_simulation
from autofl.experiments.cell import plan
from autofl.experiments.decisions import decisions_of
from autofl.files import read_toml
from autofl.jobs.many import comparison
from autofl.jobs.run import run
from autofl.report.make import make_report
from autofl.report.page import html_page
from autofl_paper.theory.analyze import analyze

JOINT = ["arm=autofl-j", "stop.rounds=1", "evaluation.test_samples=5"]


def told(*overrides, made=False):
    settings = load_settings(overrides=[*JOINT, *overrides])
    return {
        row.decision: row
        for row in decisions_of(settings.resolved(), plan(settings) if made else None)
    }


def test_by_default_every_decision_is_the_planners_and_none_the_users():
    rows = told()
    assert list(rows) == ["UEs", "band", "downlink", "steps, samples, bits", "local step", "alpha"]
    assert not any("set by you" in row.reason for row in rows.values())
    assert rows["UEs"].value == "20 of 20 asked"
    assert rows["band"].value == "5 MHz"  # five UEs of 1 MHz
    assert rows["local step"].value == "0.3 of the model's length / sqrt(k) in round k"
    assert rows["alpha"].value == "measured by each UE"


def test_a_planned_round_says_what_they_come_to():
    rows = told(
        "cell.downlink_power=1.0", "cell.downlink_bandwidth=1e5", "preset=physical", made=True
    )
    assert "take part in the planned round" in rows["UEs"].value
    assert "bits a weight" in rows["downlink"].value
    assert rows["downlink"].reason == "the most progress per second; decided in every round"
    assert "steps of" in rows["steps, samples, bits"].value


@pytest.mark.parametrize(
    ("override", "decision", "value"),
    [
        ("simulation.num_selected=8", "UEs", "8 of 20 asked"),
        ("simulation.num_selected=8", "band", "8 MHz"),
        ("cell.total_bandwidth=3e6", "band", "3 MHz"),
        ("planner.steps=false", "steps, samples, bits", "by the planner in every round"),
        (
            "learning.outer_lr=0.25",
            "local step",
            "beta = 0.25, at most 0.3 of the model's length / sqrt(k) in round k",
        ),
        ("learning.lr_decay=0.0", "local step", "0.3 of the model's length"),
        (
            "learning.lr_decay=0.5",
            "local step",
            "0.3 of the model's length / sqrt(1 + 0.5 (k - 1)) in round k",
        ),
        ("learning.inner_lr=0.1", "alpha", "0.1"),
    ],
)
def test_what_the_user_fixed_says_so(override, decision, value):
    row = told(override)[decision]
    assert row.value == value
    assert "set by you" in row.reason or override == "learning.lr_decay=0.0"


def test_a_compressor_of_the_downlink_that_is_set_is_the_users():
    rows = told("cell.downlink_power=1.0", "downlink.name=quantise", "downlink.bits=4")
    assert rows["downlink"][1:] == ("quantise", "set by you (downlink)")


def test_an_algorithm_without_a_rule_and_one_without_the_joint_planner():
    rows = {
        row.decision: row
        for row in decisions_of(load_settings(overrides=["arm=scaffold"]).resolved())
    }
    assert rows == {}
    auto = load_settings(overrides=["arm=scaffold", 'learning.outer_lr="auto"'])
    rows = {row.decision: row for row in decisions_of(auto.resolved())}
    assert rows["local step"][1:] == ("beta = 0.07", "Table I, since scaffold has no rule")


def test_a_cell_of_many_asks_a_sample():
    row = told("cell.num_ue=300")["UEs"]
    assert row.value == "100 of 300 asked"
    assert row.reason.startswith("a sample of so many")


@pytest.mark.slow
def test_the_run_folder_its_report_and_its_settings_read_back_have_the_same_reasons(tmp_path):
    settings = load_settings(overrides=[*JOINT, "evaluation.train_samples=20"])
    rows = [list(row) for row in decisions_of(settings.resolved())]
    made = run(settings, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["decisions"] == rows
    back = parse_settings(read_toml(tmp_path / "run" / "config.toml"))
    assert [list(row) for row in decisions_of(back.resolved())] == rows
    assert dump_settings(back.resolved()) == dump_settings(settings.resolved())
    report = make_report(made, tmp_path / "report")
    for text in (report.markdown(), html_page(report)):
        assert "Decisions" in text
        assert all(row[0] in text and row[2] in text for row in rows)


@pytest.mark.slow
def test_in_one_comparison_each_algorithm_has_its_own_ues_and_its_file_resumes_to_the_same(
    tmp_path,
):
    settings = load_settings(overrides=['compare.arms=["autofl", "autofl-j"]', "compare.seeds=1"])
    paper, joint = (job.settings.resolved() for job in comparison(settings, tmp_path))
    assert (paper.simulation.num_selected, paper.cell.total_bandwidth) == (5, None)
    assert (joint.simulation.num_selected, joint.cell.total_bandwidth) == (20, 5e6)
    assert (paper.learning.outer_lr, joint.learning.outer_lr) == (0.07, "auto")
    back = parse_settings(settings.said())
    again = [dump_settings(job.settings.resolved()) for job in comparison(back, tmp_path)]
    assert again == [dump_settings(one) for one in (paper, joint)]


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["cell.total_bandwidth=-1"], "cell.total_bandwidth: must be greater than or equal to 1"),
        (["cell.total_bandwidth=1e-9"], "cell.total_bandwidth: must be greater than or equal to 1"),
        (["cell.total_bandwidth=1e-20"], "cell.total_bandwidth: must be greater than"),
        (["simulation.num_selected=21"], "21 is more than the 20 UEs of the cell"),
        (["stop.gradient_norm_sq=0.1"], "stop.gradient_norm_sq: grad F is of one alpha"),
    ],
)
def test_nonsense_is_one_line(overrides, line):
    with pytest.raises(AutoFLError, match=line) as caught:
        build_simulation(load_settings(overrides=[*JOINT, *overrides]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("setting", ["inner_lr", "outer_lr"])
def test_the_theory_asks_for_numbers(setting):
    with pytest.raises(AutoFLError, match="the theory needs numbers for learning"):
        analyze(load_settings(overrides=[f'learning.{setting}="auto"']))


def test_an_algorithm_without_a_rule_takes_table_i_and_says_so(caplog):
    algorithm = build_algorithm(
        load_settings(overrides=["arm=scaffold", 'learning.outer_lr="auto"']).resolved()
    )
    assert algorithm.outer_lr == 0.07
    assert "scaffold: its beta cannot be found by the rule, so it is 0.07" in caplog.text


def test_a_plan_of_more_ues_than_are_asked_says_in_how_much_band_it_shows_them():
    settings = load_settings(overrides=[*JOINT, "simulation.num_selected=5"]).resolved()
    (asked, *_) = decisions_of(settings, plan(settings))
    assert asked.value == "5 of 20 asked; the plan shows all 20, in 4 times the band of a round"
