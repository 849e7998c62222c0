"""Runs are told apart by what a user has set, not by what an algorithm brings along."""

from autofl.config import load_settings
from autofl.experiments.run import run
from autofl.report.runs import group

QUICK = ["stop.rounds=1", "evaluation.test_samples=5", "cell.num_ue=4", "simulation.num_selected=2"]


def test_what_an_algorithm_brings_is_no_difference_and_what_is_set_is_one(tmp_path):
    def played(name, *more):
        return run(load_settings(overrides=[*QUICK, *more]), tmp_path / name)

    ours = [played("a", "algorithm=autofl"), played("j", "algorithm=autofl-j")]
    assert list(group(ours)) == ["AutoFL", "AutoFL-J"]
    other = played("k", "algorithm=autofl-j", "learning.lr_decay=0.3")
    assert list(group([*ours, other])) == [
        "AutoFL, learning.lr_decay = unset",
        "AutoFL-J, learning.lr_decay = 0.1",
        "AutoFL-J, learning.lr_decay = 0.3",
    ]
