"""Reports on folders that say what no run says: a line each, and no words that a screen or a reader
would obey.
"""

import csv
import io
import json
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from autofl.cli.main import run as run_cli
from autofl.cli.screen import show_table
from autofl.config import parse_settings
from autofl.errors import AutoFLError
from autofl.files import read_toml
from autofl.jobs.run import run
from autofl.records import RunWriter, checkpoints, read_run
from autofl.records.checks import sealed, sum_of
from autofl.report.about import provenance, title_of
from autofl.report.make import make_report
from autofl.report.plots import draw_energy

SETTINGS = parse_settings(
    {
        "cell": {"num_ue": 6},
        "simulation": {"num_selected": 3},
        "stop": {"rounds": 4},
        "evaluation": {"every": 2, "test_samples": 10},
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run, and one that was interrupted."""
    folder = tmp_path_factory.mktemp("made")
    run(SETTINGS, folder / "finished")

    def interrupt(record):
        if record.k == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SETTINGS, folder / "interrupted", on_round=interrupt)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made / "finished", tmp_path / "run")
    return tmp_path / "run"


def say(folder, config=None, **facts):
    """The manifest and the settings of a run say something else, with the right sums; None takes a
    fact away.
    """
    if config is not None:
        (folder / "config.toml").write_text(
            tomli_w.dumps({**read_toml(folder / "config.toml"), **config})
        )
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= facts
    manifest["sha256"] = {name: sum_of(folder / name) for name in manifest["sha256"]}
    said = {key: value for key, value in manifest.items() if value is not None}
    (folder / "manifest.json").write_text(json.dumps(sealed(said)))


FORMULA = r"$\frac{$"


@pytest.mark.parametrize(
    "facts",
    [
        {"label": FORMULA},
        {"data": FORMULA},
        {"config": {"data": {"partition": "labels", "labels": FORMULA}}},
        {"config": {"data": {"partition": FORMULA}}},
        {"config": {"simulation": {"num_selected": FORMULA}}},
    ],
    ids=str,
)
def test_words_with_dollar_signs_are_drawn_as_they_are(facts, folder, tmp_path):
    say(folder, **facts)
    make_report([read_run(folder)], tmp_path, 0.5)


HEADER = "round,ue,outcome,reply_time,train_time,energy,bytes_down,bytes_up,send_time,round_time"


def deployed(folder, rows):
    """The run is now one on devices, with these rows in devices.csv, and the right sums."""
    (folder / "devices.csv").write_text("".join(f"{line}\n" for line in (HEADER, *rows)))
    manifest = json.loads((folder / "manifest.json").read_text())
    say(folder, sha256={**manifest["sha256"], "devices.csv": ""})


def test_words_of_devices_and_of_folders_are_drawn_as_they_are(folder, tmp_path):
    """What Matplotlib has no letter for it says on the terminal, as it is."""
    folder = folder.rename(folder.parent / FORMULA)
    deployed(folder, [f"1,0,{FORMULA},1,1,,1,1,,", "2,0,\x1b]0;owned\x07,1,1,,1,1,,"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_report([read_run(folder)], tmp_path / "out", 0.5)


def test_odd_tables_of_devices_are_drawn(folder, tmp_path):
    """A node that is nobody and was asked, a time without its other half, numbers far apart, and no
    slowness.
    """
    rows = ["1,-1,ok,1,1,,1,1,,1", "1,0,ok,1,1,,1,1,,1", "2,9999999,ok,1,1,,1,1,,1"]
    say(folder, num_ue=None)
    deployed(folder, rows)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, "slow": None})))
    begin = time.monotonic()
    make_report([read_run(folder)], tmp_path, 0.5)
    assert time.monotonic() - begin < 30


def test_headings_hold_neither_html_nor_pictures(folder):
    say(folder, label="<b>![](//e/x)")
    make_report([read_run(folder)], folder, 0.5)
    (heading,) = [
        line for line in (folder / "report.md").read_text().splitlines() if "time / " in line
    ]
    assert r"time / \<b>![]\(//e/x)" in heading


def test_results_of_a_reproduction_that_lack_something_are_one_line(tmp_path, capsys):
    results = Path(__file__).parents[2] / "docs" / "results" / "reproduction"
    for path in results.glob("cifar10.*"):
        shutil.copy(path, tmp_path)
    about = (tmp_path / "cifar10.json").read_text()
    (tmp_path / "cifar10.json").write_text(about.replace('"partition"', '"partytion"'))
    assert run_cli(["reproduce", "--from", str(tmp_path)]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith(f"autofl: {tmp_path}: not results of a reproduction")
    )


def test_a_run_that_does_not_say_its_data_or_its_ues_is_shown_all_the_same(folder):
    say(folder, data=None, num_ue=None)
    runs = [read_run(folder)]
    assert title_of(runs) == "l = 5, 3 a round, 1 seed"
    draw_energy(runs)


@pytest.mark.parametrize("table", ["rounds.csv", "ues.csv"])
def test_numbers_of_an_unfinished_run_that_were_changed_are_noticed(table, made, tmp_path):
    """A checkpoint knows the sum of what was there when it was written."""
    shutil.copytree(made / "interrupted", tmp_path / "run")
    assert len(read_run(tmp_path / "run").rounds["round"]) == 3
    path = tmp_path / "run" / table
    header, first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, first.replace(",0", ",1", 1), *rest]))
    with pytest.raises(AutoFLError, match=rf"{table} is not what the run wrote"):
        read_run(tmp_path / "run")


def test_a_run_that_goes_on_from_its_older_checkpoint_can_be_read_at_once(made, tmp_path):
    """The newer one says what the tables no longer hold, until the next one takes its place."""
    shutil.copytree(made / "interrupted", tmp_path / "run")
    [kept], _ = checkpoints(tmp_path / "run")
    writer = RunWriter.go_on(tmp_path / "run", kept.round)
    writer._tables["ues.csv"].add([(3, *range(10))])
    writer._note_whole_rounds()
    writer.write_checkpoint(kept.arrays, {**kept.facts, "round": 3})
    writer.close()
    again = RunWriter.go_on(tmp_path / "run", kept.round)
    assert np.array_equal(read_run(tmp_path / "run").rounds["round"], [0, 1, 2])
    again.close()


ESCAPE = "\x1b]0;owned\x07\x1b[31m"


def test_no_sign_of_a_run_reaches_the_terminal_that_it_would_obey(folder, capsys):
    say(folder, problem=ESCAPE, version=ESCAPE)
    shutil.copytree(folder, folder.parent / "other")
    say(folder.parent / "other", config={"planner": {"name": "paper"}}, status=ESCAPE)
    show_table(provenance([read_run(folder), read_run(folder.parent / "other")]))
    out = capsys.readouterr().out
    assert "\ufffd" in out
    assert "\x1b" not in out
    say(folder, config={"note": ESCAPE, "planner": {"name": f"mine:{ESCAPE}"}})
    run_cli(["simulate", "--resume", str(folder)])
    run_cli(["report", str(folder.parent / ESCAPE)])
    shown = "".join(capsys.readouterr())
    assert shown.count("\ufffd") > 1
    assert not {"\x1b", "\x07"} & set(shown)


def test_a_label_is_neither_html_nor_a_formula(folder):
    say(folder, label="=1+<script>alert(1)</script>")
    report = make_report([read_run(folder)], folder)
    assert "<script>" not in (folder / "report.md").read_text().replace(r"\<script>", "")
    assert "<script>" not in report._repr_html_()
    pytest.importorskip("fastapi", reason="needs the extra explore")
    from autofl.explore.launch import Launcher
    from autofl.explore.runs import Store, id_of

    store = Store([folder], Launcher(None))
    (row,) = csv.DictReader(io.StringIO(store.compare_csv([id_of(folder)], 0.5)))
    assert row["label"].startswith("'=1+")


def test_a_label_is_no_formula_in_any_spreadsheet():
    pytest.importorskip("fastapi", reason="needs the extra explore")
    from autofl.explore.runs import as_text

    assert as_text(" =1+1;=2+2") == "' =1+1;'=2+2"
    assert as_text("AutoFL, data.labels = 5") == "AutoFL, data.labels = 5"


@pytest.mark.slow
def test_a_matplotlibrc_in_the_working_folder_decides_nothing(folder):
    """Matplotlib reads it as it is imported, so a Python of its own."""
    (folder / "matplotlibrc").write_text("text.usetex: True\nfont.size: 30\nsavefig.dpi: 7\n")
    code = "import sys; from autofl.report.make import make_report; make_report(sys.argv[1], sys.argv[2])"
    for out, where in (("here", folder), ("elsewhere", folder.parent)):
        words = [sys.executable, "-P", "-c", code, str(folder), str(folder.parent / out)]
        subprocess.run(words, cwd=where, check=True, capture_output=True)
    here, elsewhere = (folder.parent / out / "energy.png" for out in ("here", "elsewhere"))
    assert here.read_bytes() == elsewhere.read_bytes()
