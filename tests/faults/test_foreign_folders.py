"""A run folder of a stranger: no command runs code that it names, or writes anywhere but in it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from autofl.cli.main import run as run_cli
from autofl.config import dump_said, load_settings, parse_settings
from autofl.errors import AutoFLError
from autofl.files import read_toml, write_whole
from autofl.jobs.many import comparison
from autofl.jobs.run import run
from autofl.records.checkpoints import whole_checkpoints, write_checkpoint
from autofl.records.checks import sealed
from autofl.report.table import markdown_text

pytestmark = pytest.mark.slow

SMALL = {
    "cell": {"num_ue": 6},
    "simulation": {"num_selected": 3},
    "stop": {"rounds": 4},
    "evaluation": {"every": 2, "test_samples": 10},
    "compare": {"arms": ["autofl", "fedavg-2"], "seeds": 1},
}
SETTINGS = parse_settings(SMALL)


def interrupt_in_round_2(record):
    if record.k == 2:
        raise KeyboardInterrupt


def interrupted(settings, folder):
    with pytest.raises(KeyboardInterrupt):
        run(settings, folder, on_round=interrupt_in_round_2)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that was interrupted, one that has finished, and a comparison of which one run was
    interrupted.
    """
    folder = tmp_path_factory.mktemp("made")
    interrupted(SETTINGS, folder / "interrupted")
    run(SETTINGS, folder / "finished")
    both = folder / "both"
    for job, make in zip(comparison(SETTINGS, both), (interrupted, run), strict=True):
        make(job.settings, job.folder)
    write_whole(both / "config.toml", dump_said(SETTINGS))
    return folder


@pytest.fixture
def foreign(made, tmp_path, monkeypatch):
    """The same, to be spoilt; the working folder is where a stranger's code could be found."""
    shutil.copytree(made, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


ONE_RUN = ("--seeds", "1", "--workers", "1")
VERBS = {
    "simulate --resume": ("interrupted", ["simulate", "--resume", "{}"]),
    "simulate --force": ("finished", ["simulate", "{}/config.toml", "--out", "{}", "--force"]),
    "compare --resume": ("both", ["compare", "--resume", "{}", "--workers", "1"]),
    "compare --force": (
        "both",
        ["compare", "{}/config.toml", "--out", "{}", "--force", "--workers", "1"],
    ),
    "report": ("finished", ["report", "{}", "--html", "--latex"]),
    "plan": ("finished", ["plan", "{}/config.toml", "--picture", "{}/map.png"]),
    "sweep": ("finished", ["sweep", "{}/config.toml", "--over", "data.labels=5", "--out", "{}"]),
    "sweep --plan": (
        "finished",
        ["sweep", "{}/config.toml", "--plan", "--over", "cell.max_energy=1e-3,2e-3", "--out", "{}"],
    ),
    "tune": (
        "finished",
        ["tune", "{}/config.toml", "--out", "{}", "--samples", "5", "--steps", "1", *ONE_RUN],
    ),
    "analyze": (
        "finished",
        ["analyze", "{}/config.toml", "--out", "{}", "--points", "2", "--samples", "4"],
    ),
    "pilot": ("finished", ["pilot", "{}/config.toml", "--out", "{}/pilots.json", *ONE_RUN]),
    "data draw": ("finished", ["data", "draw", "{}/config.toml", "--out", "{}/partition"]),
}
"""Every command that reads or writes a run folder, in the quickest form; `{}` is the folder."""


def name_code(folder, **more):
    """Every run in a folder, and the folder itself, now names code for its algorithm; its sums are
    right.
    """
    for path in [folder / "config.toml", *folder.glob("*/config.toml")]:
        table = read_toml(path) | {"arm": "runs.payload:Rule", **more}
        table.setdefault("compare", {})["arms"] = ["runs.payload:Rule"]
        path.write_text(tomli_w.dumps(table))
        seal_again(path.parent)


def seal_again(folder):
    """A manifest with the sum of the settings that are there now."""
    path = folder / "manifest.json"
    if path.is_file():
        manifest = json.loads(path.read_text())
        manifest["sha256"]["config.toml"] = hashlib.sha256(
            (folder / "config.toml").read_bytes()
        ).hexdigest()
        path.write_text(json.dumps(sealed(manifest)))


@pytest.fixture
def payload(foreign):
    """Code that lies among the runs, and leaves a file where it was run."""
    (foreign / "payload.py").write_text(
        f"open({str(foreign.parent / 'was-run')!r}, 'w')\nraise RuntimeError('enough')\n"
    )
    yield foreign.parent / "was-run"
    for name in [name for name in sys.modules if name.partition(".")[0] == "runs"]:
        del sys.modules[name]


@pytest.mark.parametrize("verb", VERBS)
def test_no_command_runs_code_that_a_run_folder_names(verb, foreign, payload, capsys):
    name, words = VERBS[verb]
    name_code(foreign / name)
    status = run_cli(
        [word.format(foreign / name) for word in words if word not in ("--html", "--latex")]
    )
    assert not payload.exists()
    if verb != "report":  # which needs none of it
        assert status == 2
        assert "runs.payload:Rule" in capsys.readouterr().err


QUOTED = """planner = {name = "runs.payload:Rule"}
"planner.name" = "paper"
"""


@pytest.mark.parametrize("verb", ["simulate --resume", "plan", "sweep"])
def test_a_key_with_a_dot_does_not_hide_the_code_that_a_run_names(verb, foreign, payload, capsys):
    name, words = VERBS[verb]
    path = foreign / name / "config.toml"
    table = read_toml(path)
    del table["planner"]
    path.write_text(QUOTED + tomli_w.dumps(table))
    seal_again(foreign / name)
    assert run_cli([word.format(foreign / name) for word in words]) == 2
    assert not payload.exists()
    assert "no setting has a dot in its name" in capsys.readouterr().err


def test_the_settings_of_a_sweep_run_no_code_either(foreign, payload, capsys):
    shutil.move(foreign / "finished", foreign / "swept" / "runs" / "one")
    shutil.copy(
        foreign / "swept" / "runs" / "one" / "config.toml", foreign / "swept" / "config.toml"
    )
    name_code(foreign / "swept")
    assert run_cli(["plan", str(foreign / "swept" / "config.toml")]) == 2
    assert not payload.exists()
    assert "runs.payload:Rule" in capsys.readouterr().err


def test_workers_import_nothing_from_the_working_folder(foreign, tmp_path):
    """`python -c`, by which they start, looks for modules there first; Python itself, so that all
    of it is new.
    """
    for place in (foreign / "both").glob("fedavg-2-*"):
        shutil.rmtree(place)
    for name in ("multiprocessing", "numpy"):
        (foreign / "both" / f"{name}.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')\n")
    program = [
        str(Path(sys.executable).parent / "autofl"),
        "compare",
        "--resume",
        ".",
        "--workers",
        "2",
    ]
    done = subprocess.run(
        program, cwd=foreign / "both", capture_output=True, text=True, timeout=300
    )
    assert not (tmp_path / "was-run").exists()
    assert done.returncode == 0, done.stderr


def test_workers_find_the_users_own_code_in_the_working_folder(foreign):
    (foreign.parent / "mine.py").write_text(
        "from autofl.algorithms.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n"
    )
    shutil.rmtree(foreign / "both")
    options = [
        f"--set={key}={json.dumps(value)}"
        for key, value in (("cell.num_ue", 6), ("stop.rounds", 2))
    ]
    words = [
        "compare",
        "--algorithms",
        "mine:Mine,fedavg-2",
        "--seeds",
        "1",
        "--workers",
        "2",
        *options,
    ]
    program = [
        str(Path(sys.executable).parent / "autofl"),
        *words,
        "--set=simulation.num_selected=3",
    ]
    done = subprocess.run(program, cwd=foreign.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("left", ["rounds.csv", "ues.csv", "checkpoint-0"])
def test_a_run_without_its_manifest_runs_no_code_either(left, foreign, payload, capsys):
    name_code(foreign / "interrupted", planner={"name": "runs.payload:Rule"})
    for path in (foreign / "interrupted").iterdir():
        if path.name not in ("config.toml", left):
            path.unlink()
    assert run_cli(["plan", str(foreign / "interrupted" / "config.toml")]) == 2
    assert not payload.exists()
    assert "runs.payload:Rule" in capsys.readouterr().err


def test_settings_of_any_name_in_a_run_folder_run_no_code(foreign, payload, capsys):
    (foreign / "finished" / "best.toml").write_text('algorithm = "runs.payload:Rule"\n')
    assert run_cli(["plan", str(foreign / "finished" / "best.toml")]) == 2
    assert not payload.exists()
    assert "name it too" in capsys.readouterr().err


@pytest.mark.parametrize("left", [".lock", "sweep.csv", "tuned.json"])
@pytest.mark.parametrize("name", ["config.toml", "tuned.toml"])
def test_the_settings_of_many_runs_that_are_gone_run_no_code(name, left, foreign, payload, capsys):
    (foreign / "left").mkdir()
    (foreign / "left" / left).touch()
    (foreign / "left" / name).write_text('planner = {name = "runs.payload:Rule"}\n')
    assert run_cli(["plan", str(foreign / "left" / name)]) == 2
    assert not payload.exists()
    assert "name it too" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--scenario", "paper"], ["--set", "planner.name=exact"]])
def test_a_name_that_is_no_text_is_nothing_to_import(words, foreign, capsys):
    """As text it would be a module and an object in it: the module {'a'."""
    (foreign.parent / "{'a'.py").write_text(f"open({str(foreign.parent / 'was-run')!r}, 'w')\n")
    path = foreign / "finished" / "config.toml"
    path.write_text(tomli_w.dumps(read_toml(path) | {"planner": {"name": {"a": "b"}}}))
    seal_again(path.parent)
    status = run_cli(["plan", str(path), *words])
    sys.modules.pop("{'a'", None)
    assert not (foreign.parent / "was-run").exists()
    assert (status, "planner.name" in capsys.readouterr().err) == (
        (2, True) if "--scenario" in words else (0, False)
    )


def test_a_reproduction_does_not_write_into_a_linked_folder(foreign, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (foreign / "results").symlink_to(tmp_path / "elsewhere")
    assert (
        run_cli(["reproduce", "fig2a", "--seeds", "1", "--workers", "1", "--out", str(foreign)])
        == 2
    )
    assert "a link" in capsys.readouterr().err
    assert contents(tmp_path / "elsewhere") == {}


@pytest.mark.parametrize(("verb", "said"), [("simulate", []), ("compare", ["--workers", "1"])])
def test_code_that_the_user_names_too_is_run(verb, said, foreign, payload, capsys):
    folder = foreign / ("interrupted" if verb == "simulate" else "both")
    name_code(folder)
    command = [verb, "--resume", str(folder), *said]
    assert run_cli([*command, "--set", "arm=runs.payload:Other"]) == 2
    assert not payload.exists()
    words = [
        "--set",
        "arm=runs.payload:Rule",
        "--set",
        'compare.arms=["runs.payload:Rule"]',
    ]
    capsys.readouterr()
    assert run_cli([*command, *words]) == 2
    assert "enough" in capsys.readouterr().err
    assert payload.exists()


def test_a_resumed_run_takes_no_other_settings(foreign, capsys):
    for words in (["--set", "stop.rounds=5"], ["--algorithm", "fedprox"], ["--scenario", "paper"]):
        assert run_cli(["simulate", "--resume", str(foreign / "interrupted"), *words]) == 2
        assert "--resume uses the settings" in capsys.readouterr().err


ACTIVE = ("starting", "running")
OUTPUTS = ("report.md", "report.html", "energy.png", "energy.svg", "map.png",
           "sweep.csv", "sweep.json", "sweep.png", "partition.png", "partition.svg", "pilots.json",
           "tuned.json", ".reserve")  # fmt: skip


def lead_out(path, victims, how):
    """A file is now a link to, or another name of, one outside the folder, of the same content."""
    victim = victims / str(len(list(victims.iterdir())))
    victim.write_bytes(path.read_bytes() if path.is_file() else b"precious")
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if how == "link":
        path.symlink_to(victim)
    else:
        os.link(victim, path)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if verb != "analyze"]
)  # which takes minutes
def test_no_command_writes_through_a_link_in_a_run_folder(verb, foreign, tmp_path):
    name, words = VERBS[verb]
    folder, victims, elsewhere = foreign / name, tmp_path / "victims", tmp_path / "elsewhere"
    victims.mkdir()
    elsewhere.mkdir()
    there = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    for number, path in enumerate((*there, *(folder / name for name in OUTPUTS))):
        lead_out(path, victims, ("link", "hard link")[number % 2])
    for inner in ("latex", "runs", "pilots"):
        (folder / inner).symlink_to(elsewhere)
    before = contents(victims)
    assert run_cli([word.format(folder) for word in words]) in (0, 2)
    assert contents(victims) == before
    assert contents(elsewhere) == {}


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("rounds.csv", "link"),
        ("rounds.csv", "hard link"),
        ("ues.csv", "link"),
        ("ues.csv", "hard link"),
        (".lock", "link"),
    ],
)
def test_a_run_is_not_resumed_where_a_file_leads_elsewhere(file, how, foreign, tmp_path, capsys):
    """A checkpoint may say that the table was empty then: its target was cut to nothing, and added
    to.
    """
    (tmp_path / "victims").mkdir()
    lead_out(foreign / "interrupted" / file, tmp_path / "victims", how)
    before = contents(tmp_path / "victims")
    assert run_cli(["simulate", "--resume", str(foreign / "interrupted")]) == 2
    assert contents(tmp_path / "victims") == before
    assert f"{file}: " in capsys.readouterr().err


def test_a_run_folder_that_is_a_link_to_another_is_not_written_by_a_comparison(foreign, capsys):
    inner = next(path for path in (foreign / "both").iterdir() if path.name.startswith("autofl"))
    shutil.rmtree(inner)
    inner.symlink_to(foreign / "interrupted")
    before = contents(foreign / "interrupted")
    assert run_cli(["compare", "--resume", str(foreign / "both"), "--workers", "1"]) == 2
    assert contents(foreign / "interrupted") == before
    assert "a link" in capsys.readouterr().err


def test_nobody_can_guess_the_name_of_a_file_that_is_not_whole_yet(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for number in range(300):
        (tmp_path / f".note.{os.getpid()}-{number}.part").symlink_to(victim)
    write_whole(tmp_path / "note", "new")
    assert victim.read_text() == "precious"


@pytest.fixture
def page(foreign):
    """The explorer page over these runs, without a browser."""
    pytest.importorskip("fastapi", reason="needs the extra explore")
    pytest.importorskip("httpx", reason="needs the extra browser")
    from starlette.testclient import TestClient

    from autofl.explore.app import make_app

    headers = {"Authorization": "Bearer token"}
    return TestClient(
        make_app([foreign], "token", 8117), base_url="http://127.0.0.1:8117", headers=headers
    )


def resume_on(page, folder):
    pytest.importorskip("fastapi", reason="needs the extra explore")
    from autofl.explore.runs import id_of

    return page.post(f"/api/runs/{id_of(folder)}/resume")


def test_the_page_resumes_no_run_that_names_code(page, foreign, payload):
    name_code(foreign / "interrupted")
    answer = resume_on(page, foreign / "interrupted")
    assert (answer.status_code, payload.exists()) == (422, False)
    assert "runs.payload:Rule" in answer.json()["detail"]


def test_a_folder_with_an_odd_name_is_one_among_the_runs(page, foreign):
    odd = Path(os.fsdecode(os.fsencode(foreign) + b"/b\xff"))
    shutil.copytree(foreign / "finished", odd)
    shutil.copytree(foreign / "finished", odd / "damaged")
    (odd / "damaged" / "manifest.json").write_text("{")
    rows = page.get("/api/runs").json()["runs"]
    names = {row["name"]: row for row in rows}
    assert names["b\ufffd"]["status"] == "finished"
    ids = [row["id"] for row in rows]
    assert page.post("/api/compare", json={"runs": ids, "target": 0.5}).status_code == 200
    damaged = names["b\ufffd/damaged"]["id"]
    assert page.get(f"/api/runs/{damaged}").status_code == 422


@pytest.mark.parametrize(("section", "name"), [("data", "npz"), ("channel", "trace")])
def test_the_page_resumes_no_run_that_reads_a_file_elsewhere(
    section, name, page, foreign, tmp_path
):
    (tmp_path / "secret.csv").write_text("root:x:0:0\n")
    folder = foreign / "interrupted"
    path, here = folder / "config.toml", {"name": name, "file": str(tmp_path / "secret.csv")}
    path.write_text(tomli_w.dumps(read_toml(path) | {section: here}))
    seal_again(folder)
    answer = resume_on(page, folder)
    assert (answer.status_code, "root" in answer.text) == (422, False)
    assert "outside the folders of this page" in answer.json()["detail"]


@pytest.mark.parametrize("how", ["link", "hard link"])
def test_the_log_of_a_run_that_the_page_resumes_leads_nowhere_else(how, page, foreign, tmp_path):
    (tmp_path / "victims").mkdir()
    lead_out(foreign / "interrupted" / "explore.log", tmp_path / "victims", how)
    assert resume_on(page, foreign / "interrupted").status_code == 422
    assert contents(tmp_path / "victims") == {"0": b"precious"}


def test_the_page_starts_runs_without_code_that_lies_in_the_working_folder(page, foreign, tmp_path):
    """`python -m` looks for modules there first: a file numpy.py would be taken for the library."""
    (tmp_path / "numpy.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')\n")
    run = resume_on(page, foreign / "interrupted").json()
    while run["status"] in ACTIVE:
        time.sleep(0.1)
        run = next(row for row in page.get("/api/runs").json()["runs"] if row["id"] == run["id"])
    assert run["status"] == "finished"
    assert not (tmp_path / "was-run").exists()


def test_a_deployment_is_not_resumed_by_code_that_its_run_names(foreign, payload, tmp_path, capsys):
    pytest.importorskip("flwr", reason="needs the extra flower")
    (tmp_path / "site" / "flower").mkdir(parents=True)
    for name in ("config.toml", "flower/config.toml"):
        (tmp_path / "site" / name).write_text("")
    name_code(foreign / "interrupted", planner={"name": "runs.payload:Rule"})
    command = [
        "deploy",
        "run",
        "--folder",
        str(tmp_path / "site"),
        "--resume",
        str(foreign / "interrupted"),
    ]
    assert run_cli(command) == 2
    assert "runs.payload:Rule" in capsys.readouterr().err
    assert not payload.exists()


@pytest.mark.parametrize("more", [[], ["--set", "stop.rounds=2"]])
def test_the_settings_of_a_deployment_run_no_code(more, foreign, payload, tmp_path, capsys):
    pytest.importorskip("flwr", reason="needs the extra flower")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "config.toml").write_text('planner = {name = "runs.payload:Rule"}\n')
    assert run_cli(["deploy", "run", "--folder", str(tmp_path / "site"), *more]) == 2
    assert "runs.payload:Rule" in capsys.readouterr().err
    assert not payload.exists()


def set_in(folder, text):
    """These lines now stand at the end of the settings of a run; its sums are right."""
    with open(folder / "config.toml", "a") as file:
        file.write(text)
    seal_again(folder)


@pytest.mark.parametrize(
    "text", ['words = "iid\\n\\\\input{/etc/passwd}"', '"a\\nb" = 1', 'words = ["\\u001b[2J"]']
)
def test_settings_with_signs_that_no_screen_shows_are_refused(text, foreign, capsys):
    """A line break would end a comment of LaTeX, and begin a heading or a picture of Markdown."""
    set_in(foreign / "finished", f"\n[odd]\n{text}\n")
    assert run_cli(["report", str(foreign / "finished"), "--latex"]) == 2
    assert "signs that no screen shows" in capsys.readouterr().err
    assert not (foreign / "finished" / "latex").exists()


def test_dates_among_the_settings_are_shown(foreign):
    set_in(foreign / "finished", "\n[odd]\nday = 2026-01-02\nhours = [12:00:00]\n")
    assert run_cli(["report", str(foreign / "finished")]) == 0
    assert "2026-01-02" in (foreign / "finished" / "report.md").read_text()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <b>", "a \\<b>"),
        ("a \\<b>", "a \\\\\\<b>"),
        ("![x](http://a/b.png)", "![x]\\(http://a/b.png)"),
        ("a\n\n# b", "a # b"),
    ],
)
def test_words_in_markdown_stay_words(text, shown):
    assert markdown_text(text) == shown


def keep_again(folder, edit):
    """The checkpoint of a run, changed, with the right sum of itself."""
    (kept,) = whole_checkpoints(folder)
    facts, arrays = dict(kept.facts), dict(kept.arrays)
    edit(facts, arrays)
    write_checkpoint(kept.path, arrays, facts, kept.tables)


def as_doubles(_, arrays):
    arrays |= {name: array.astype(np.float64) for name, array in arrays.items()}


def after_a_number_too_long(facts, _):
    facts["sim_time"] = 10**400


@pytest.mark.parametrize("edit", [as_doubles, after_a_number_too_long])
def test_a_checkpoint_of_another_kind_is_one_line(edit, foreign, capsys):
    keep_again(foreign / "interrupted", edit)
    assert run_cli(["simulate", "--resume", str(foreign / "interrupted")]) == 2
    assert "begin the run anew" in capsys.readouterr().err


def test_a_checkpoint_that_names_a_table_elsewhere_cuts_nothing_there(foreign, tmp_path):
    folder = foreign / "interrupted"
    (tmp_path / "victim").write_text("precious")
    (kept,) = whole_checkpoints(folder)
    nothing = (0, hashlib.sha256(b"").hexdigest())
    tables = {**kept.tables, os.path.relpath(tmp_path / "victim", folder): nothing}
    write_checkpoint(kept.path, kept.arrays, kept.facts, tables)
    assert run_cli(["simulate", "--resume", str(folder)]) == 0
    assert (tmp_path / "victim").read_text() == "precious"


STATES = ("[1]", "5", '{"programs": "x"}', '{"programs": [5]}', '{"port": "x"}', '{"port": Infinity}',
          '{"port": 70000}', '{"slow": 0}', '{"out": 7}', '{"programs": ["\\u0000"]}')  # fmt: skip


@pytest.mark.parametrize("verb", ["status", "down"])
@pytest.mark.parametrize("state", STATES)
def test_a_damaged_note_of_what_runs_counts_as_none(verb, state, tmp_path):
    pytest.importorskip("flwr", reason="needs the extra flower")
    (tmp_path / "state.json").write_text(state)
    assert run_cli(["deploy", verb, "--folder", str(tmp_path)]) == 0


def test_a_note_that_is_a_pipe_counts_as_none(tmp_path):
    pytest.importorskip("flwr", reason="needs the extra flower")
    os.mkfifo(tmp_path / "state.json")
    assert run_cli(["deploy", "down", "--folder", str(tmp_path)]) == 0


def test_down_ends_no_process_that_is_not_flowers(tmp_path):
    """A stranger's note may name any program; only what carries the folder's mark is ended."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    with subprocess.Popen(["sleep", "600"]) as bystander:
        (tmp_path / "state.json").write_text(json.dumps({"programs": ["sleep", "superlink"]}))
        status = run_cli(["deploy", "down", "--folder", str(tmp_path)])
        lives = bystander.poll() is None
        bystander.kill()
    assert (status, lives) == (0, True)


def test_a_database_with_another_name_elsewhere_is_not_opened(tmp_path, capsys):
    pytest.importorskip("flwr", reason="needs the extra flower")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "site").mkdir()
    os.link(tmp_path / "victim", tmp_path / "site" / "superlink.db")
    assert (
        run_cli(["deploy", "prepare", "--host", "localhost", "--folder", str(tmp_path / "site")])
        == 2
    )
    assert "superlink.db: a file with another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["superlink = 5", "[superlink.autofl]\naddress = 'a:b'", "[superlink]"]
)
def test_a_damaged_address_of_a_deployment_is_one_line(text, tmp_path, capsys):
    pytest.importorskip("flwr", reason="needs the extra flower")
    (tmp_path / "flower").mkdir()
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "flower" / "config.toml").write_text(text)
    assert run_cli(["deploy", "status", "--folder", str(tmp_path)]) == 2
    assert "not the place of a SuperLink" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["arm", "arms"])
@pytest.mark.parametrize("in_a_file", [False, True])
def test_code_that_an_arm_names_is_code_too(key, in_a_file, tmp_path):
    arm = {"title": "Mine", "algorithm": "payload:Rule"}
    if in_a_file:
        write_whole(tmp_path / "mine.toml", tomli_w.dumps(arm))
        arm = str(tmp_path / "mine.toml")
    table = {"arm": arm} if key == "arm" else {"compare": {"arms": ["autofl", arm]}}
    write_whole(tmp_path / "config.toml", tomli_w.dumps(table))
    write_whole(tmp_path / "manifest.json", "{}")
    with pytest.raises(AutoFLError, match="it runs code of its own, payload:Rule; if you trust it"):
        load_settings(tmp_path / "config.toml")
