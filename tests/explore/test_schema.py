"""Whatever the OpenAPI description allows, and what it does not, is answered as it says, and never
with a 500.
"""

# ruff: noqa: E402

import time

import pytest

pytest.importorskip("fastapi", reason="needs the extra explore")
schemathesis = pytest.importorskip("schemathesis", reason="needs the extra browser")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from autofl.config.describe import describe
from autofl.explore.app import make_app
from autofl.explore.launch import Launcher
from autofl.explore.planning import SECTIONS, VALUES

pytestmark = pytest.mark.slow

TOKEN, PORT = "a-token", 8117
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Host": f"127.0.0.1:{PORT}"}
SLOW = {"/api/forecast", "/api/curve"}
"""Which take seconds where what is asked makes sense."""
OPERATIONS = [
    *(
        "GET /api/about",
        "POST /api/plan",
        "POST /api/toml",
        "POST /api/curve",
        "POST /api/forecast",
        "GET /api/runs",
    ),
    *(
        "POST /api/runs",
        "GET /api/runs/{run_id}",
        "POST /api/runs/{run_id}/{wish}",
        "GET /api/runs/{run_id}/events",
    ),
    *("POST /api/compare", "POST /api/compare.csv"),
]


@pytest.fixture(scope="module")
def app(runs, tmp_path_factory):
    """A server with one run and a folder for new ones, of which at most one is active; it ends with
    the tests.
    """
    folder, launchers = tmp_path_factory.mktemp("started"), []

    def launcher(place):
        launchers.append(Launcher(place))
        return launchers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autofl.explore.launch.MOST_AT_ONCE", 1)
        patch.setattr("autofl.explore.app.Launcher", launcher)
        yield make_app([runs / "autofl", folder], TOKEN, PORT)
    launchers[0].close()


@pytest.fixture(scope="module")
def described(app):
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=HEADERS)
    operations = [result.ok() for result in schema.get_all_operations()]
    return {f"{operation.method.upper()} {operation.path}": operation for operation in operations}


@pytest.fixture(scope="module")
def client(app):
    return TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=HEADERS)


def test_all_operations_are_described(described):
    assert set(described) == set(OPERATIONS)


@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "not-allowed"]
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_answers_as_described(described, name, mode):
    operation = described[name]

    @settings(
        max_examples=2 if operation.path in SLOW and mode is GenerationMode.POSITIVE else 12,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        case.call_and_validate(headers=HEADERS, checks=CHECKS, timeout=300)

    check()


TINY = {
    "cell": {"num_ue": 4},
    "simulation": {"num_selected": 2},
    "evaluation": {"test_samples": 5},
}


def test_a_run_answers_as_described_from_its_start_to_its_end(described, client):
    def asked(name, **given):
        case = described[name].Case(**given)
        return case.call_and_validate(headers=HEADERS, checks=CHECKS, timeout=300)

    def wish(run_id, word):
        return asked(
            "POST /api/runs/{run_id}/{wish}", path_parameters={"run_id": run_id, "wish": word}
        )

    def seen(run_id, *states):
        for _ in range(6000):
            row = next(row for row in client.get("/api/runs").json()["runs"] if row["id"] == run_id)
            if row["status"] in states:
                return row["status"]
            time.sleep(0.1)
        raise AssertionError(f"{row} never was {' or '.join(states)}")

    for row in client.get("/api/runs").json()["runs"]:  # whatever other tests have started
        if row["own"] and row["status"] in ("starting", "running"):
            assert wish(row["id"], "stop").status_code in (200, 409)
            seen(row["id"], "stopped", "finished", "failed")
    body = {"settings": TINY, "rounds": 100_000, "every": 1000}
    started = asked("POST /api/runs", body=body)
    assert started.status_code == 200
    run_id = started.json()["id"]
    assert asked("POST /api/runs", body=body).status_code == 409  # one is active
    assert seen(run_id, "running") == "running"
    assert asked("GET /api/runs/{run_id}", path_parameters={"run_id": run_id}).status_code == 200
    assert asked("POST /api/compare", body={"runs": [run_id]}).status_code == 200
    assert wish(run_id, "pause").status_code == 200
    assert seen(run_id, "paused") == "paused"
    assert wish(run_id, "resume").status_code == 200
    assert seen(run_id, "running") == "running"
    assert wish(run_id, "stop").status_code == 200
    assert seen(run_id, "stopped") == "stopped"
    assert wish(run_id, "stop").status_code == 409


KEYS = [key for key, _, _ in describe() if key.partition(".")[0] in SECTIONS + VALUES]
WILD = [
    *(
        0,
        -1,
        1,
        3,
        7.5,
        1e-300,
        1e300,
        2**70,
        True,
        "",
        "x",
        "none",
        "joint",
        "exact",
        "radio",
        "quantise",
        "dirichlet",
    ),
    *(
        [],
        [1.0],
        [[1.0, 2.0]],
        [[0.0, 0.0]] * 3,
        {},
        {"uniform": [1, 2]},
        {"disc": 1e-3},
        {"rayleigh": 1e6},
    ),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # 1e300 and the like
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    changed=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WILD), min_size=1, max_size=3)
)
def test_wild_values_of_real_settings_are_planned_or_refused(client, changed):
    asked = {}
    for key, value in changed.items():
        section, _, name = key.rpartition(".")
        (asked.setdefault(section, {}) if section else asked)[name] = value
    answer = client.post("/api/plan", json={"settings": asked})
    assert answer.status_code in (200, 422)
    assert "detail" in answer.json() or answer.json()["plan"]["ues"]["id"]
