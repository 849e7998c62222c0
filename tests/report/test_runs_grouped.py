"""Runs are told apart by what a user has set, not by what an algorithm brings along."""

from autofl.config import load_settings
from autofl.jobs.run import run
from autofl.report.about import title_of
from autofl.report.make import make_report
from autofl.report.runs import group, newest_of_equal
from reference.runs import written

QUICK = ["stop.rounds=1", "evaluation.test_samples=5", "cell.num_ue=4", "simulation.num_selected=2"]


def test_what_an_algorithm_brings_is_no_difference_and_what_is_set_is_one(tmp_path):
    def played(name, *more):
        return run(load_settings(overrides=[*QUICK, *more]), tmp_path / name)

    ours = [played("a", "arm=autofl"), played("j", "arm=autofl-j")]
    assert list(group(ours)) == ["AutoFL", "AutoFL-J"]
    other = played("k", "arm=autofl-j", "learning.lr_decay=0.3")
    assert list(group([*ours, other])) == [
        "AutoFL, learning.lr_decay = unset",
        "AutoFL-J, learning.lr_decay = auto",
        "AutoFL-J, learning.lr_decay = 0.3",
    ]


def test_a_title_names_how_many_are_asked_only_where_all_runs_ask_as_many(tmp_path):
    asked = [("a", 5), ("b", 5), ("c", 20)]
    runs = [
        written(tmp_path / name, name, 1, [0.1], 1.0, f"[simulation]\nnum_selected = {num}\n")
        for name, num in asked
    ]
    assert "5 a round" in title_of(runs[:2])
    assert "a round" not in title_of(runs)


JOINT = "".join(
    f"{key} = true\n" for key in ("admission", "band", "bits", "steps", "samples", "frequency")
)
FIXED = "num_samples = 5\npower = 'max'\n"
PLANNER = "[planner]\nname = '{}'\n{}"


def test_another_planner_is_named_and_its_own_settings_are_not(tmp_path):
    arms = [
        ("autofl", "paper", ""),
        ("per-fedavg", "fixed", FIXED),
        ("autofl-j", "joint", JOINT),
        ("fedavg-2", "joint", JOINT),
    ]
    runs = [
        written(tmp_path / name, name, 1, [0.1], 1.0, PLANNER.format(*planner))
        for name, *planner in arms
    ]
    assert list(group(runs[:3])) == ["AutoFL", "Per-FedAvg", "AutoFL-J"]
    assert list(group(runs)) == [
        "AutoFL, planner = paper",
        "Per-FedAvg, planner = fixed",
        "AutoFL-J, planner = joint",
        "FedAvg-2, planner = joint",
    ]


def test_of_many_settings_a_label_names_those_that_tell_runs_apart(tmp_path):
    def configured(rounds, every):
        more = "".join(f"[section{k}]\nvalue = {rounds}\n" for k in range(9))
        return f"[evaluation]\nevery = {every}\n[stop]\nrounds = {rounds}\n{more}"

    runs = [
        written(tmp_path / f"{rounds}-{every}", "autofl", 1, [0.1], 1.0, configured(rounds, every))
        for rounds, every in ((3, 1), (3, 2), (5, 2))
    ]
    assert list(group(runs)) == [
        "AutoFL, evaluation.every = 1, section0.value = 3, and 9 more settings",
        "AutoFL, evaluation.every = 2, section0.value = 3, and 9 more settings",
        "AutoFL, evaluation.every = 2, section0.value = 5, and 9 more settings",
    ]


def test_of_equal_runs_the_newest_is_reported_and_the_others_are_told_of(tmp_path):
    runs = [
        written(tmp_path / name, "autofl", 1, [final], 1.0)
        for name, final in (("a", 0.1), ("b", 0.2), ("c", 0.3))
    ]
    for one, ended_at in zip(runs, (1.0, 3.0, 2.0), strict=True):
        one.manifest["ended_at"] = ended_at
    kept, words = newest_of_equal(runs)
    assert [run.folder.name for run in kept] == ["b"]
    assert words.endswith("left out: 2 of AutoFL")
    assert newest_of_equal(kept)[1] is None
    assert newest_of_equal([runs[0], runs[0]])[0] == [runs[0]]
    report = make_report(runs, tmp_path / "report")
    assert report.results.values["final_adapted"].tolist() == [0.2]
    assert words in str(report)
