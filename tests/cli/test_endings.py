"""How runs that went wrong end: what is said, where, and the exit status."""

import json
import os
import subprocess
import sys

import pytest

from autofl.cli.main import run as run_cli
from autofl.records import find_runs, read_manifest, read_run

pytestmark = pytest.mark.slow

QUICK = [
    "stop.rounds=8",
    "evaluation.every=4",
    "evaluation.test_samples=5",
    "evaluation.train_samples=20",
]
DIVERGING = ["learning.outer_lr=1000"]
UNHEARD = ["cell.max_power=1e-12"]


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def answer(capsys, *argv):
    status = run_cli([str(word) for word in argv])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_diverged_simulation_says_so_and_exits_with_3(tmp_path):
    command = [
        sys.executable,
        "-m",
        "autofl",
        "simulate",
        "--out",
        str(tmp_path),
        *sets(*QUICK, *DIVERGING),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3
    manifest = read_manifest(tmp_path)
    assert manifest["stop"] == "diverged"
    assert f"the run diverged: AutoFL seed 1 in round {manifest['rounds']}" in done.stderr
    assert "smaller value of learning.outer_lr (1000 here)" in done.stderr
    assert "Traceback" not in done.stderr
    assert "AutoFL" in done.stdout  # the table is still there


def test_with_json_the_warning_is_part_of_it_and_the_status_is_the_same(capsys, tmp_path):
    status, out, err = answer(
        capsys, "simulate", "--out", tmp_path, "--json", *sets(*QUICK, *DIVERGING)
    )
    assert status == 3
    (warning,) = json.loads(out)["warnings"]
    assert warning in " ".join(err.split())
    status, out, _ = answer(capsys, "report", tmp_path, "--json")
    assert (status, json.loads(out)["warnings"]) == (0, [warning])  # redrawing is fine


def test_a_comparison_exits_with_3_only_if_every_run_diverged(capsys, tmp_path):
    # Per-FedAvg at alpha = 1000 and beta = 10 overflows float32 within eight rounds; FedAvg has no
    # alpha.
    steps = [
        "learning.inner_lr=1000",
        "learning.outer_lr=10",
        'compare.arms=["autofl", "fedavg-2"]',
    ]
    comparison = ["compare", "--seeds", 1, "--workers", 1, *sets(*QUICK)]
    status, _, err = answer(capsys, *comparison, *sets(*steps), "--out", tmp_path / "some")
    stops = {
        name: read_manifest(tmp_path / "some" / f"{name}-seed1")["stop"]
        for name in ("autofl", "fedavg-2")
    }
    assert stops == {"autofl": "diverged", "fedavg-2": "rounds"}
    assert status == 0
    assert "1 of 2 runs diverged: AutoFL seed 1 in round" in err
    four = 'compare.arms=["autofl", "per-fedavg", "fedavg-1", "fedavg-2"]'  # AutoFL-J is guarded
    status, _, err = answer(capsys, *comparison, *sets(*DIVERGING, four), "--out", tmp_path / "all")
    assert status == 3
    assert "4 of 4 runs diverged" in err


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (UNHEARD, "20 cannot be decoded even at P_max"),
        (["cell.max_energy=1e-9"], "20 lack energy"),
        (["cell.data_size=2"], "20 own too few samples"),
        (
            ["cell.num_ue=2", "cell.max_power=[1e-12, 0.01]", "cell.max_energy=1e-9"],
            "1 cannot be decoded",
        ),
    ],
    ids=["power", "energy", "data", "both"],
)
def test_a_plan_without_anybody_says_so_first(capsys, settings, reason):
    status, out, err = answer(capsys, "plan", *sets(*settings))
    assert status == 0
    first = err.splitlines()[0]
    assert first.startswith("nobody can take part in this round: ")
    assert reason in first
    status, out, err = answer(capsys, "plan", *sets(*settings), "--json")
    assert json.loads(out)["num_feasible"] == 0
    assert err.strip().startswith(first)


def test_a_plan_with_somebody_does_not_say_nobody(capsys):
    assert "nobody" not in answer(capsys, "plan")[2]


def test_a_run_in_which_nobody_was_heard_says_so_before_its_table(tmp_path):
    command = [
        sys.executable,
        "-m",
        "autofl",
        "simulate",
        "--out",
        str(tmp_path),
        *sets(*QUICK, *UNHEARD),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0
    assert done.stdout.index(
        "nobody was ever heard in the run (AutoFL seed 1)"
    ) < done.stdout.index("K*")
    assert (
        "40 of the 40 UEs selected could not take part" in done.stdout
    )  # five of them in each of eight rounds
    plan = [
        sys.executable,
        "-m",
        "autofl",
        "plan",
        str(tmp_path / "config.toml"),
    ]  # where it points to for the reasons
    assert "cannot be decoded" in subprocess.run(plan, capture_output=True, text=True).stderr


WITHOUT_STDERR = """
import os, sys
from autofl.cli.main import run
for command in ("simulate", "compare", "sweep --plan --over data.labels=2,5"):
    if sys.stderr is not None:
        os.close(2)
        sys.stderr = None
    name, *more = command.split()
    print(name, run([name, *more, "--out", f"{sys.argv[1]}/{name}", *sys.argv[2:]]))
"""


def test_commands_work_where_standard_error_is_closed(tmp_path):
    """As after `2>&-`: there was no word and no folder, or a table got the number of the stream."""
    few = (
        "compare.arms=['fedavg-1']",
        "compare.seeds=1",
        "stop.rounds=1",
        "cell.num_ue=5",
        *QUICK[1:],
    )
    words = [sys.executable, "-c", WITHOUT_STDERR, str(tmp_path), *sets(*few)]
    said = subprocess.run(
        words, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2), text=True
    ).stdout
    assert [line for line in said.splitlines() if line.endswith(" 0")] == [
        "simulate 0",
        "compare 0",
        "sweep 0",
    ]
    assert "into" not in said  # what is for standard error is not in the results
    assert read_run(tmp_path / "simulate").manifest["status"] == "finished"
    assert len(find_runs(tmp_path / "compare")) == 1
    assert (tmp_path / "sweep" / "sweep.csv").is_file()
