"""What people see: tables that fit, how much is said, and where it is kept."""

import re
from pathlib import Path

import pytest

from autofl.cli.main import run as run_cli
from autofl.cli.screen import show_table
from autofl.jobs.job import Progress
from autofl.report import progress
from autofl.report.table import Table

WIDE = Table(
    ["algorithm", *(f"a long heading of column {place} [mJ]" for place in range(9)), "remark"],
    [
        [
            name,
            *(f"{value}.123 ± 0.456" for value in range(9)),
            "words that may be wrapped at any blank",
        ]
        for name in ("AutoFL", "a name of three words")
    ],
)


def answer(capsys, *argv):
    status = run_cli([str(word) for word in argv])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_fits_and_no_number_is_broken(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    show_table(WIDE)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    for cell in WIDE.rows[0][1:10]:
        assert out.count(cell) == 2
    # The first column has 21 letters and a number 13: beside it fit 1, 3, or all 9 of them.
    pieces = out.count("AutoFL")
    assert pieces == out.count("algorithm") == {40: 10, 80: 3, 200: 1}[width]


@pytest.mark.parametrize(
    "command",
    [
        *("plan", "plan --planner joint", "list arms", "list parts", "list settings"),
        "list scenarios",
        "plan examples/cell.toml --planner exact",
        "plan --target 0.85",
    ],
)
def test_what_commands_print_fits_80_columns(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(Path(__file__).parents[2])
    status, out, err = answer(capsys, *command.split())
    assert status == 0
    assert max(map(len, (out + err).splitlines())) <= 80


def test_a_run_that_is_piped_says_a_line_a_round_and_the_log_keeps_it(capsys, tmp_path):
    command = [
        "simulate",
        "--out",
        tmp_path / "run",
        "--force",
        "--set",
        "stop.rounds=3",
        "--set",
        "evaluation.every=2",
    ]
    command += ["--set", "evaluation.test_samples=5", "--log-file", tmp_path / "logs" / "a.log"]
    _, _, err = answer(capsys, *command)
    lines = re.findall(
        r"^autofl seed 1: round (\d) of 3, [\d.]+ simulated s(, adapted)?", err, re.MULTILINE
    )
    assert lines == [("0", ", adapted"), ("1", ""), ("2", ", adapted"), ("3", ", adapted")]
    kept = (tmp_path / "logs" / "a.log").read_text().splitlines()
    messages = [line.split(" ", 3)[3] for line in kept][1:]  # whole there, wrapped on the screen
    assert " ".join(messages).split() == err.split()
    assert len(messages) < len(err.splitlines())
    status, out, err = answer(capsys, *command, "--quiet")
    assert (status, err) == (0, "")
    assert "AutoFL" in out
    assert len((tmp_path / "logs" / "a.log").read_text().splitlines()) == 2 * len(
        kept
    )  # the file hears it all


@pytest.mark.parametrize(
    "words",
    [["-q", "-v"], ["--log-file"], ["--log-file", "--json"], ["--log-file", "/proc/none/x.log"]],
)
def test_bad_options_are_one_line(capsys, words):
    status, out, err = answer(capsys, "list", "settings", *words)
    assert (status, out, len(err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("autofl s", {"schema", "simulate", "sweep"}),
        ("autofl plan --planner e", {"exact"}),
        ("autofl plan --set cell.max_", {"cell.max_energy=", "cell.max_power="}),
        ("autofl sweep --over cell.max_p", {"cell.max_power="}),
    ],
)
def test_a_shell_is_offered_commands_parts_and_settings(capsys, monkeypatch, typed, offered):
    monkeypatch.setenv("_AUTOFL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    with pytest.raises(SystemExit):
        run_cli([])
    assert set(capsys.readouterr().out.split()) == offered


def test_the_time_left_counts_the_rounds_that_may_still_be_run(capsys, monkeypatch):
    """Runs that stop early make a command shorter; they say nothing of how long a round of the
    others takes.
    """
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.ProgressBar(4000, each_run=False) as bar:

        def told(label, k, finished):
            now[0] += 60.0
            bar(Progress(label, k, 1000, 1.0, 0.5, 1.0, finished))
            return capsys.readouterr().err

        assert told("a", 100, True) == ""  # 100 of the 3,100 that are left, at a minute for 100
        assert told("b", 100, False) == "5 % of the rounds done, at most about 29 min left\n"
        told("b", 1000, True)
        told("c", 1000, True)
        assert told("d", 990, False) == "95 % of the rounds done, less than a minute left\n"
