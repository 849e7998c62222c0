"""CPU time and size of the explorer's plans: each planner in each scenario, for 100 and 10,000 UEs.

python benchmarks/explore.py [planner ...]

A plan is asked for as the page asks for it, and the time is that of server and client together, in
one process: the median of five answers, after one that is not counted. Sizes are those of 10,000
UEs.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from starlette.testclient import TestClient

from autofl.config.scenarios import scenario_names
from autofl.explore.app import make_app
from autofl.registry import PARTS

TOKEN, PORT = "a-token", 8117
NUM_UES = (100, 10_000)
REPEATS = 5


def asked(
    client: TestClient, scenario: str, planner: str, num_ue: int
) -> tuple[float, int, int] | None:
    """CPU seconds of an answer, its bytes as JSON and as sent; None where it is refused."""
    settings = {"cell": {"num_ue": num_ue}, "planner": {"name": planner}}
    if planner == "adaquantfl":
        settings["compressor"] = {"name": "quantise", "bits": 4}
    spent = []
    for _ in range(REPEATS + 1):
        begin = time.process_time()
        answer = client.post(
            "/api/plan", json={"scenario": scenario, "settings": settings, "digits": 6}
        )
        spent.append(time.process_time() - begin)
        if answer.status_code == 422:
            return None
        assert answer.status_code == 200, answer.text
    return statistics.median(spent[1:]), len(answer.content), int(answer.headers["content-length"])


def main(planners: list[str]) -> None:
    print("| planner | scenario | 100 UEs [ms] | 10,000 UEs [ms] | JSON [MB] | sent [MB] |")
    print("|---|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        headers = {"Authorization": f"Bearer {TOKEN}", "Host": f"127.0.0.1:{PORT}"}
        client = TestClient(make_app([Path(folder)], TOKEN, PORT), headers=headers)
        for planner in planners:
            for scenario in scenario_names():
                few, many = (asked(client, scenario, planner, num_ue) for num_ue in NUM_UES)
                if few is None or many is None:
                    print(f"| `{planner}` | {scenario} | refused | | | |", flush=True)
                    continue
                times, sizes = (1e3 * few[0], 1e3 * many[0]), (1e-6 * many[1], 1e-6 * many[2])
                line = [f"{value:.0f}" for value in times] + [f"{value:.2f}" for value in sizes]
                print(f"| `{planner}` | {scenario} | {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(PARTS["planner"]))
