"""What the server answers, and to whom."""

# ruff: noqa: E402

import asyncio
import csv
import io
import json
import shutil
import sys
import time
from pathlib import Path
from threading import BoundedSemaphore

import pytest

pytest.importorskip("fastapi", reason="needs the extra explore")
httpx = pytest.importorskip("httpx", reason="needs the extra browser")

from starlette.testclient import TestClient

from autofl.cli.main import run as run_cli
from autofl.config import load_settings
from autofl.config.scenarios import scenario_names
from autofl.errors import AutoFLError
from autofl.experiments.cell import plan
from autofl.explore.app import _forecast, make_app
from autofl.explore.guard import MOST_BODY
from autofl.explore.planning import Coming, table_of
from autofl.records import read_run

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TOKEN, PORT = "a-token", 8117
HOST = f"http://127.0.0.1:{PORT}"


def client_of(*folders, token=TOKEN):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return TestClient(make_app(folders, TOKEN, PORT), base_url=HOST, headers=headers)


@pytest.fixture(scope="module")
def client(runs):
    return client_of(runs)


@pytest.fixture(scope="module")
def stranger(runs):
    return client_of(runs, token=None)


def said_by_plan(capsys, tmp_path, toml):
    """What `autofl plan FILE --json` prints."""
    (tmp_path / "cell.toml").write_text(toml)
    capsys.readouterr()
    assert run_cli(["plan", str(tmp_path / "cell.toml"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def as_rows(plan):
    """The plan as the command line prints it: a table for each UE."""
    columns = plan["ues"]
    return plan | {
        "ues": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    }


@pytest.mark.parametrize(
    ("scenario", "planner"),
    [
        *((name, "exact") for name in scenario_names()),
        *(("paper", name) for name in ("paper", "joint", "fixed", "yang")),
    ],
)
def test_a_plan_is_that_of_the_command_line_from_the_saved_file(
    client, capsys, tmp_path, scenario, planner
):
    asked = {
        "scenario": scenario,
        "settings": {"cell": {"num_ue": 9, "max_power": 0.05}, "planner": {"name": planner}},
    }
    there = client.post("/api/plan", json=asked).json()["plan"]
    assert as_rows(there) == said_by_plan(
        capsys, tmp_path, client.post("/api/toml", json=asked).text
    )
    assert there["planner"] == planner


def test_places_that_were_dragged_are_planned_and_saved(client, capsys, tmp_path):
    positions = [[30.0, 40.0], [-150.0, 80.0], [10.5, -160.25]]
    asked = {
        "settings": {
            "cell": {"positions": positions},
            "compressor": {"name": "quantise", "bits": 6},
        }
    }
    answer = client.post("/api/plan", json=asked).json()
    assert answer["plan"]["ues"]["distance"] == pytest.approx([50.0, 170.0, 160.59], abs=0.01)
    assert answer["positions"] == [pytest.approx(place) for place in positions]
    assert answer["values"]["bits"] == pytest.approx(
        6 + 16 / 256, rel=1e-3
    )  # 6 bits and the scale of each block
    assert as_rows(answer["plan"]) == said_by_plan(
        capsys, tmp_path, client.post("/api/toml", json=asked).text
    )


def test_sliders_keep_to_what_the_planner_declares(client):
    for planner, ranges in (
        ("exact", {"epsilon": [0.0, 1 / 3]}),
        ("fixed", {"num_samples": [3, 1e9]}),
    ):
        asked = {"settings": {"planner": {"name": planner}}}
        assert client.post("/api/plan", json=asked).json()["ranges"] == ranges


def test_energy_is_split_into_computing_and_sending(client):
    answer = client.post("/api/plan", json={}).json()
    cell, ues = plan(load_settings()).round.cell, as_rows(answer["plan"])["ues"]
    for ue, computing in zip(ues, answer["compute_energy"], strict=True):
        cycles = cell.cycles_per_sample[ue["id"]] * ue["num_samples"] * ue["local_steps"]
        assert computing == pytest.approx(1e-27 / 2 * cycles * ue["cpu_frequency"] ** 2, rel=1e-9)
        assert ue["energy"] - computing == pytest.approx(
            ue["tx_power"] * ue["upload_time"], rel=1e-9
        )
    slowest = max(ues, key=lambda ue: ue["upload_time"] + ue["compute_time"])
    assert answer["slowest"] == slowest["id"]


def test_values_are_cut_to_the_digits_that_are_asked_for(client):
    """As text says them with so many digits; what is said of the whole round stays as it is."""
    asked = {"scenario": "umi-phones", "settings": {"planner": {"name": "joint"}}}
    whole, cut = (
        client.post("/api/plan", json=asked | more).json() for more in ({}, {"digits": 6})
    )
    for name, column in whole["plan"].pop("ues").items():
        expected = [
            float(f"{value:.6g}") if isinstance(value, float) else value for value in column
        ]
        assert cut["plan"]["ues"][name] == expected
    assert {name: value for name, value in cut["plan"].items() if name != "ues"} == whole["plan"]
    for place, exact in zip(cut["positions"], whole["positions"], strict=True):
        assert place == [float(f"{value:.3f}") for value in exact]


def test_the_answer_for_a_large_cell_is_small(client):
    """A tenth of the 5.4 MB that the rows of `autofl plan --json` take."""
    asked = {"settings": {"cell": {"num_ue": 10_000}}, "digits": 6}
    packed = client.post("/api/plan", json=asked)
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < 0.54e6
    plain = client.post("/api/plan", json=asked, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert len(plain.content) < 2e6
    assert plain.json()["plan"] == packed.json()["plan"]


@pytest.mark.parametrize(("num_ue", "limit"), [(100, 0.1), (10_000, 1.0)])
@pytest.mark.parametrize(
    ("scenario", "planner"),
    [
        *(("paper", name) for name in ("paper", "exact", "joint", "yang")),
        *((name, "joint") for name in scenario_names() if name != "paper"),
    ],
)
def test_a_plan_is_answered_while_one_waits(client, scenario, planner, num_ue, limit):
    settings = {"cell": {"num_ue": num_ue}, "planner": {"name": planner}}
    asked = {"scenario": scenario, "settings": settings, "digits": 6}
    spent = []
    for _ in range(3):
        begin = time.process_time()  # of this process: server and client
        assert client.post("/api/plan", json=asked).status_code == 200
        spent.append(time.process_time() - begin)
    assert min(spent) < 2.0 * limit  # half of that where nothing else runs


@pytest.mark.parametrize(
    ("over", "key"), [("energy", "cell.max_energy={x}"), ("radius", "cell.distance={{disc={x}}}")]
)
def test_a_point_of_a_curve_is_the_plan_of_its_settings(client, over, key):
    curve = client.post("/api/curve", json={"over": over}).json()
    place = curve["x"].index(pytest.approx(curve["here"])) - 3
    made = plan(load_settings(overrides=[key.format(x=repr(curve["x"][place]))]))
    assert curve["round_time"][place] == pytest.approx(float(made.round.cost.time), rel=1e-9)
    assert curve["energy"][place] == pytest.approx(float(made.round.cost.energy.sum()), rel=1e-9)


def test_more_ues_a_round_take_longer_rounds_and_fewer_of_them(client):
    curve = client.post("/api/curve", json={"over": "selected", "target": 0.8}).json()
    assert curve["x"] == [2, 3, 5, 8, 10, 15, 20]
    assert curve["round_time"][0] < curve["round_time"][-1]
    assert curve["time_to_target"][0] > curve["time_to_target"][-1]


@pytest.mark.parametrize("scenario", ["factory-hall", "rural-macro"])
def test_a_curve_ends_where_the_path_loss_does(client, scenario):
    curve = client.post("/api/curve", json={"scenario": scenario, "over": "radius"}).json()
    assert curve["here"] < max(curve["x"]) < 4 * curve["here"]
    assert "path loss" in curve["refused"]
    assert all(len(curve[name]) == len(curve["x"]) for name in ("round_time", "energy", "feasible"))


def test_a_settings_file_is_planned_as_on_the_command_line(client, capsys, runs, tmp_path):
    for path in (
        EXAMPLES / "cell.toml",
        EXAMPLES / "experiment.toml",
        runs / "autofl" / "config.toml",
    ):
        made = client.post("/api/plan", json={"file": path.read_text()}).json()["plan"]
        assert as_rows(made) == said_by_plan(capsys, tmp_path, path.read_text())


def test_what_is_changed_lies_on_top_of_the_settings_file(client, capsys, tmp_path):
    """The planner joint has no epsilon: that of the file is left out with the planner it was for."""
    settings = {"planner": {"name": "joint"}, "cell": {"max_power": 0.02}}
    asked = {"file": (EXAMPLES / "cell.toml").read_text(), "settings": settings}
    made = client.post("/api/plan", json=asked).json()["plan"]
    assert made["planner"] == "joint"
    assert as_rows(made) == said_by_plan(
        capsys, tmp_path, client.post("/api/toml", json=asked).text
    )


@pytest.mark.parametrize(
    "key", ["planner", "channel", "model", "selection", "compressor", "attack", "aggregator"]
)
def test_a_settings_file_imports_nothing(client, tmp_path, monkeypatch, key):
    (tmp_path / "left_behind.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    file = f'[{key}]\nname = "left_behind:Part"\n'
    for route in ("/api/plan", "/api/toml", "/api/curve", "/api/forecast", "/api/runs"):
        answer = client.post(route, json={"file": file})
        assert answer.status_code == 422
        assert "own parts can be used on the command line only" in answer.json()["detail"]
    assert "left_behind" not in sys.modules


@pytest.mark.parametrize(
    "file",
    [
        "cell",
        "[cell",
        "[cell]\nnum_ues = 3",
        "seed = nan",
        "\0",
        "a.b.c.d.e.f.g.h.i = 1",
        'algorithm = "x:y"',
    ],
)
def test_a_settings_file_that_is_none_ends_in_one_line(client, file):
    answer = client.post("/api/plan", json={"file": file})
    assert answer.status_code == 422
    assert len(answer.json()["detail"].splitlines()) == 1


def test_a_forecast_says_how_far_it_is_and_ends_in_the_forecast_of_the_command_line(client, capsys):
    lines = [
        json.loads(line)
        for line in client.post("/api/forecast", json={"target": 0.85}).text.splitlines()
    ]
    assert [line["of"] for line in lines[:-1]] == [20] * (len(lines) - 1)
    assert [line["drawn"] for line in lines[:-1]] == sorted(line["drawn"] for line in lines[:-1])
    capsys.readouterr()
    assert run_cli(["plan", "--target", "0.85", "--json"]) == 0
    assert lines[-1]["forecast"] == json.loads(capsys.readouterr().out)["forecast"]


def test_a_forecast_that_nobody_waits_for_ends():
    coming = Coming(table_of("paper", {}), 0.85)
    coming.is_wanted = False
    with pytest.raises(AutoFLError, match="cancelled"):
        coming.forecast()


def test_closing_the_connection_ends_a_forecast():
    class Endless:
        drawn, is_wanted = 0, True

        def forecast(self):
            while self.is_wanted:
                time.sleep(0.01)
            raise AutoFLError("the forecast was cancelled")

    class Listening:
        async def is_disconnected(self):
            return False

    coming = Endless()

    async def listen_once():
        lines = _forecast(Listening(), coming, BoundedSemaphore(1))
        first = await anext(lines)
        await lines.aclose()
        return json.loads(first)

    assert asyncio.run(listen_once()) == {"drawn": 0, "of": 20}
    assert not coming.is_wanted


# --- who may ask ---

ROUTES = ["/", "/static/main.js", "/openapi.json", "/api/about", "/api/runs", "/docs", "/nowhere"]


@pytest.mark.parametrize("route", ROUTES)
def test_nothing_is_answered_without_the_token(stranger, route):
    for token in ("", "wrong", TOKEN + "x", TOKEN[:-1]):
        assert stranger.get(route, headers={"Authorization": f"Bearer {token}"}).status_code == 401
        assert stranger.get(route, params={"token": token}).status_code == 401
    assert stranger.get(route).status_code == 401
    assert stranger.get(route, params={"token": TOKEN}).status_code in (200, 404)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": f"evil.example:{PORT}"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_and_other_names_are_refused(client, headers):
    assert client.post("/api/plan", json={}, headers=headers).status_code == 403


def test_the_page_itself_may_ask(client):
    headers = {"Origin": HOST, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/plan", json={}, headers=headers).status_code == 200


def test_what_is_too_long_is_refused_whatever_its_header_says(client):
    assert client.post("/api/plan", content=b"x" * (MOST_BODY + 1)).status_code == 413
    pieces = (b"x" * 2**18 for _ in range(10))  # no Content-Length
    assert client.post("/api/plan", content=pieces).status_code == 413


def test_the_page_may_load_nothing_from_elsewhere(client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.text.count(TOKEN) >= 3
    assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    "settings",
    [
        {"planner": {"name": "os:system"}},
        {"algorithm": "antigravity:fly"},
        {"data": {"name": "npz", "file": "secret"}},
        {"data": {"folder": "secret"}},
        {"channel": {"name": "trace", "file": "secret"}},
        {"deployment": {"deadline": 1.0}},
        {"deploy": {"deadline": -1.0}},
        {"cell": {"num_ue": 10_001}},
        {"cell": {"num_ue": None}},
        {"cell": []},
        {"cell": {"distance": {"disc": [[[[[[1.0]]]]]]}}},
    ],
)
def test_files_own_parts_and_nonsense_end_in_one_line(client, settings):
    for route in ("/api/plan", "/api/toml", "/api/curve", "/api/runs"):
        answer = client.post(route, json={"settings": settings})
        assert answer.status_code == 422
        assert len(answer.json()["detail"].splitlines()) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"target": NaN}', b"[" * 5000, b"\xff\xfe", b'{"scenario": "\\ud800"}'],
)
def test_what_is_not_json_is_no_fault_of_the_server(client, body):
    for route in ("/api/plan", "/api/compare", "/api/forecast"):
        assert client.post(
            route, content=body, headers={"Content-Type": "application/json"}
        ).status_code in (400, 422)


# --- runs ---


def id_of(client, name):
    return next(row["id"] for row in client.get("/api/runs").json()["runs"] if row["name"] == name)


def test_runs_are_listed_and_read(client, runs):
    rows = {row["name"]: row for row in client.get("/api/runs").json()["runs"]}
    assert set(rows) == {"autofl", "fedavg-2"}
    assert {row["status"] for row in rows.values()} == {"finished"}
    said, run = client.get(f"/api/runs/{rows['autofl']['id']}").json(), read_run(runs / "autofl")
    assert said["rounds"]["adapted_accuracy"] == run.rounds["adapted_accuracy"].tolist()
    assert len(said["who"]) == 6 * 3
    assert sum(said["energy_per_ue"]) == pytest.approx(run.rounds["energy"].sum())
    later = client.get(f"/api/runs/{rows['autofl']['id']}", params={"after": 4}).json()
    assert later["rounds"]["round"] == [5, 6]
    assert {index for index, _, _ in later["who"]} == {5, 6}


def test_runs_stand_side_by_side_as_in_a_report(client, capsys, runs, tmp_path):
    ids = [id_of(client, name) for name in ("autofl", "fedavg-2")]
    said = client.post("/api/compare", json={"runs": ids, "target": 0.3}).json()
    capsys.readouterr()
    assert run_cli(["report", str(runs), "--target", "0.3", "--out", str(tmp_path), "--json"]) == 0
    assert said["rows"] == json.loads(capsys.readouterr().out)["rows"]
    text = client.post("/api/compare.csv", json={"runs": ids, "target": 0.3}).text
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [line["label"] for line in lines] == [row["label"] for row in said["rows"]]
    assert [float(line["final_adapted"]) for line in lines] == [
        row["final_adapted"]["mean"] for row in said["rows"]
    ]


def test_no_run_outside_the_given_folders_is_read(runs, tmp_path):
    (tmp_path / "linked").symlink_to(runs / "autofl")
    copied = tmp_path / "copied"
    shutil.copytree(runs / "autofl", copied)
    (copied / "ues.csv").unlink()
    (copied / "ues.csv").symlink_to(runs / "autofl" / "ues.csv")
    outside = client_of(runs)
    inside = client_of(tmp_path)
    assert inside.get("/api/runs").json()["runs"] == []
    for run_id in (id_of(outside, "autofl"), "0" * 16):
        assert inside.get(f"/api/runs/{run_id}").status_code == 404
    for path in ("../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e"):
        assert inside.get(f"/api/runs/{path}").status_code in (404, 422)
        assert inside.get(f"/static/{path}").status_code == 404


def test_a_run_that_ended_is_not_paused_and_a_finished_one_does_not_go_on(client):
    run_id = id_of(client, "autofl")
    assert [
        client.post(f"/api/runs/{run_id}/{wish}").status_code
        for wish in ("pause", "stop", "resume")
    ] == [409] * 3


def test_a_run_whose_tables_are_not_what_it_wrote_is_listed_as_damaged(unwell):
    rows = {row["name"]: row for row in client_of(unwell).get("/api/runs").json()["runs"]}
    assert rows["cut"]["status"] == "damaged"
    assert "SHA-256" in rows["cut"]["problem"]
    assert {rows[name]["status"] for name in ("autofl", "fedavg-2")} == {"finished"}


def test_a_damaged_run_keeps_no_others_from_being_compared(unwell):
    client = client_of(unwell)
    ids = {name: id_of(client, name) for name in ("autofl", "cut", "interrupted", "garbled")}
    said = client.post("/api/compare", json={"runs": list(ids.values())}).json()
    assert {curve["id"] for curve in said["curves"]} == {ids["autofl"], ids["interrupted"]}
    assert set(said["left_out"]) == {ids["cut"], ids["garbled"]}
    alone = client.post("/api/compare", json={"runs": [ids["cut"]]})
    assert alone.status_code == 422
    assert "SHA-256" in alone.json()["detail"]


def test_a_damaged_run_is_told_of_in_one_line(runs, tmp_path):
    shutil.copytree(runs / "autofl", tmp_path / "autofl")
    with open(tmp_path / "autofl" / "rounds.csv", "a") as file:
        file.write("7,nonsense\n")
    client = client_of(tmp_path)
    answer = client.get(f"/api/runs/{id_of(client, 'autofl')}")
    assert answer.status_code == 422
    assert "SHA-256" in answer.json()["detail"]


def test_every_file_of_the_page_is_served_and_small():
    folder = Path(make_app.__globals__["STATIC"])
    client = client_of(folder)
    names = [path.name for path in folder.iterdir() if path.name != "index.html"]
    sizes = [len(client.get(f"/static/{name}").content) for name in names]
    assert sum(sizes) + len(client.get("/").content) < 1_000_000
    assert "main.js" in names


def test_with_the_joint_planner_all_ues_are_asked_until_fewer_are_set_and_each_decision_has_its_reason(
    client,
):
    def answer(**settings):
        asked = {"settings": {"planner": {"name": "joint"}, **settings}}
        return client.post("/api/plan", json=asked).json()

    free, fixed = answer(), answer(simulation={"num_selected": 4})
    assert (free["all_asked"], free["values"]["num_selected"]) == (True, 20)
    assert (fixed["all_asked"], fixed["values"]["num_selected"]) == (False, 4)
    reasons = [{name: why for name, _, why in one["decisions"]} for one in (free, fixed)]
    assert not any("set by you" in why for why in reasons[0].values())
    assert reasons[1]["UEs"] == "set by you (simulation.num_selected)"
    # The slider stands where it was moved to, though five UEs' band is shared by all.
    moved = answer(cell={"bandwidth": free["values"]["bandwidth"]})
    assert moved["values"]["bandwidth"] == free["values"]["bandwidth"] == 1e6
    assert moved["plan"]["round_time"] == free["plan"]["round_time"]
    assert (
        client.post("/api/plan", json={}).json()["decisions"] == []
    )  # the paper's planner has none of these
