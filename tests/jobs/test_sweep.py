"""Sweeps: what is swept, that a planned row is what `autofl plan` prints, that a sweep goes on
where it stopped.
"""

import csv
import json
import re
import subprocess
import sys

import pytest

from autofl.cli.main import run as run_cli
from autofl.errors import AutoFLError
from autofl.jobs.sweep import parse_axis
from autofl.records import read_run

RUN = [
    "--set",
    "stop.rounds=2",
    "--set",
    "evaluation.every=1",
    "--set",
    "evaluation.test_samples=5",
    "--workers",
    "1",
]


def answer(capsys, *argv):
    status = run_cli([str(word) for word in argv])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("cell.max_energy=1e-3:2e-3:3", [0.001, 0.0015, 0.002]),
        ("cell.max_energy=1e-4:1e-2:3:log", [0.0001, 0.001, 0.01]),
        ("data.labels=1:5:3", [1, 3, 5]),
        ("cell.num_ue=10:1000:3:log", [10, 100, 1000]),
        ("cell.snr_threshold_db=30:0:4", [30, 20, 10, 0]),
        ("data.labels=1,2,5", [1, 2, 5]),
        ("planner.name=paper, exact", ["paper", "exact"]),
        ("arm=autofl,mine:Rule", ["autofl", "mine:Rule"]),
        ("cell.distance={disc=100},{uniform=[1, 2]}", [{"disc": 100}, {"uniform": [1, 2]}]),
        ('data.name="a,b",c', ["a,b", "c"]),
    ],
)
def test_lists_and_ranges_are_read_as_they_are_written(text, values):
    read = list(parse_axis(text).values)
    assert (
        read == pytest.approx(values, rel=1e-11) if isinstance(values[0], float) else read == values
    )
    assert [type(value) for value in read] == [type(value) for value in values]


@pytest.mark.parametrize(
    "text",
    ["cell.max_energy", "=1,2", "data.labels=", "data.labels=1,,2", "data.labels=1,1", "x=1:2", "x=1:2:1", "x=1:1:3",
     "x=0:1:3:log", "x=1:2:3:cubic", "x=1:2:9999", "seed=1,2", "x=1:1e999:3"],
)  # fmt: skip
def test_what_cannot_be_swept_is_refused(text):
    with pytest.raises(AutoFLError, match="--over"):
        parse_axis(text)


def test_a_planned_row_is_what_plan_prints(capsys, tmp_path):
    over = ["--over", "cell.max_energy=1e-3:5e-3:3", "--over", "planner.name=exact,paper"]
    assert answer(capsys, "sweep", "--plan", *over, "--seeds", 2, "--out", tmp_path)[0] == 0
    with open(tmp_path / "sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 2
    for row in rows[::5]:
        same = [f"{key}={row[key]}" for key in ("cell.max_energy", "planner.name", "seed")]
        _, out, _ = answer(
            capsys, "plan", "--json", *(word for text in same for word in ("--set", text))
        )
        plan = json.loads(out)
        for name in ("energy", "num_feasible", *(["round_time"] if plan["num_feasible"] else [])):
            assert float(row[name]) == plan[name]
        assert int(row["num_samples"]) == sum(ue["num_samples"] for ue in plan["ues"])
        if plan["num_feasible"]:
            last = plan["ues"][int(float(row["straggler"]))]
            assert float(row["round_time"]) == pytest.approx(
                last["compute_time"] + last["upload_time"], rel=1e-12
            )
            assert float(row["upload_time"]) == last["upload_time"]
    about = json.loads((tmp_path / "sweep.json").read_text())
    assert about["over"] == {
        "cell.max_energy": [0.001, 0.003, 0.005],
        "planner.name": ["exact", "paper"],
    }
    assert about["seeds"] == [1, 2]
    assert (tmp_path / "sweep.png").stat().st_size > 10_000


def test_a_round_in_which_nobody_takes_part_has_no_time(capsys, tmp_path):
    command = ["sweep", "--plan", "--over", "cell.max_energy=1e-9,3e-3", "--out", tmp_path]
    rows = json.loads(answer(capsys, *command, "--json")[1])["rows"]
    assert [row["num_feasible"] for row in rows] == [0, 20]
    assert rows[0]["round_time"] is None
    assert rows[1]["round_time"] > 0.0
    out = answer(capsys, *command)[1]
    assert re.search(r"^1e-09 +– +0 +0 +0$", out, re.MULTILINE)
    _, out, err = answer(capsys, "plan", "--set", "cell.max_energy=1e-9")
    assert "nobody can take part" in err
    assert "round time" not in out


@pytest.mark.slow
def test_a_planned_sweep_loads_no_torch(tmp_path):
    code = (
        "import sys; from autofl.cli.main import run;"
        f"status = run(['sweep', '--plan', '--over', 'data.labels=1,2', '--out', {str(tmp_path)!r}]);"
        "sys.exit(status or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.slow
def test_a_simulated_sweep_goes_on_where_it_stopped(capsys, tmp_path):
    command = ["sweep", "--over", "data.labels=1,5", "--out", tmp_path, *RUN]
    status, out, _ = answer(capsys, *command, "--json")
    rows = json.loads(out)["rows"]
    assert status == 0
    assert [row["data.labels"] for row in rows] == [1, 5]
    runs = [read_run(tmp_path / "runs" / row["name"]) for row in rows]
    assert [run.config["data"]["labels"] for run in runs] == [1, 5]
    assert [row["final_adapted"] for row in rows] == [
        run.rounds["adapted_accuracy"][-1] for run in runs
    ]
    made = (runs[0].folder / "manifest.json").stat().st_mtime_ns
    (runs[1].folder / "manifest.json").unlink()
    status, again, err = answer(capsys, *command, "--json")
    assert "2 runs, 1 of them to be made" in err
    assert json.loads(again)["rows"] == rows
    assert (runs[0].folder / "manifest.json").stat().st_mtime_ns == made
    _, shown, _ = answer(capsys, *command[:3], "--out", tmp_path, *RUN)
    assert "85 %" in shown.partition("─")[0]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--over", "cell.maxenergy=1,2"],
        ["--over", "data.labels=1:2:3"],
        ["--over", "data.labels=1,2", "--seeds", "0"],
        ["--over", "data.labels=1,2", "--over", "data.labels=3,4"],
        ["--over", "cell.max_energy=1:2:999", "--over", "cell.max_power=1:2:999"],
        ["--plan", "--over", "data.labels=1,2", "--workers", "2"],
        ["--plan", "--over", "data.labels=1,2", "--target", "2"],
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, words):
    status, out, err = answer(capsys, "sweep", *words, "--out", tmp_path / "sweep")
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert not (tmp_path / "sweep").exists()
