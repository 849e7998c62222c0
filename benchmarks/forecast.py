"""Forecasts against full runs on settings that no pilot has seen; the score is coverage.

    python benchmarks/forecast.py [--workers 16] [--quick] [--fresh]     writes
    docs/results/forecast.json
    python benchmarks/forecast.py --table                                prints the table of
    docs/theory-results.md from it

Pilots come with the package, or are made first where a setting is another learning problem (`autofl
pilot --target`); those are kept in docs/results/forecast-pilots. Forecasts draw networks of seeds 1
to 20, pilots have seeds 101 and 102 (own ones 201, 202), runs have seeds 1001 to 1005. A run stops
at the target, so that its simulated time is the measured learning time. Pilots and runs that are
there already are kept, so that a change of the forecast needs no training and an interrupted
command goes on; --fresh makes all anew.
"""

import argparse
import json
import math
import os
import re
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

SEEDS = range(1001, 1006)
COMMON = ["evaluation.test_samples=200"]
RESULTS = Path(__file__).parents[1] / "docs" / "results"


class Problem(NamedTuple):
    """A learning problem, and the accuracy to which it is learned."""

    overrides: list[str]
    target: float = 0.85
    data: str = "mnist"
    rounds: int = 600  # of a run at most
    pilot_rounds: int = 1500


SHIPPED = Problem([])
"""Its pilots come along."""
OWN_PROBLEMS = {
    "10 UEs": Problem(["cell.num_ue=10"]),
    "40 UEs": Problem(["cell.num_ue=40"]),
    "Dirichlet 0.5": Problem(["data.partition=dirichlet", "data.concentration=0.5"]),
    "beta = 0.1": Problem(["learning.outer_lr=0.1"]),
    "CIFAR-10": Problem(["evaluation.test_samples=100"], 0.35, "cifar10", 300, 200),
}
"""Learning problems that need pilots of their own."""
PROBLEMS = {"": SHIPPED, "MNIST-5k": Problem([], 0.85, "mnist5k"), **OWN_PROBLEMS}
BEYOND = {
    "owners of label 0 out of reach, l = 2": ["data.labels=2", "cell.distance={far}"],
    "owners of label 0 out of reach, l = 5": ["cell.distance={half}"],
    "owners of label 0 at 960 m, l = 2": ["data.labels=2", "cell.distance={edge}"],
    "tau = 12": ["learning.local_steps=12"],
    "1 UE a round, d = 4": [
        "planner.name=fixed",
        "planner.num_samples=4",
        "simulation.num_selected=1",
    ],
    "l = 1": ["data.labels=1"],
    "R = 1500 m": ["cell.distance={disc=1500}"],
}
"""Settings outside the pilots: the forecast must say so, or refuse."""


class Row(NamedTuple):
    """A setting of a problem."""

    name: str
    problem: str
    overrides: list[str]

    def load(self, *more: str) -> Any:
        import autofl

        its = PROBLEMS[self.problem]
        known = [
            f"data.name={its.data}",
            *COMMON,
            f"stop.target_accuracy={its.target}",
            f"stop.rounds={its.rounds}",
        ]
        return autofl.load_settings(overrides=[*known, *its.overrides, *self.overrides, *more])


def settings_of() -> Iterator[Row]:
    """Every setting, in the order of the table."""
    for planner, radius, labels in product(("paper", "exact"), (300, 500, 700, 900), (3, 4, 7)):
        words = [
            f"planner.name={planner}",
            f"cell.distance={{disc={radius}}}",
            f"data.labels={labels}",
        ]
        yield Row(f"{planner}, R = {radius} m, l = {labels}", "", words)
    for planner, radius, labels in product(("paper", "exact"), (150, 250, 350), (4, 6)):
        words = [
            f"planner.name={planner}",
            f"cell.distance={{disc={radius}}}",
            f"data.labels={labels}",
        ]
        yield Row(
            f"{planner}, physical, R = {radius} m, l = {labels}", "", ["preset=physical", *words]
        )
    for d, m, labels in product((8, 25), (3, 8), (3, 6)):
        words = [
            f"planner.num_samples={d}",
            f"simulation.num_selected={m}",
            f"data.labels={labels}",
        ]
        yield Row(f"d = {d}, {m} a round, l = {labels}", "", ["planner.name=fixed", *words])
    for tau, d in product((2, 3), (8, 15)):
        words = [f"planner.num_samples={d}", f"learning.local_steps={tau}"]
        yield Row(f"tau = {tau}, d = {d}", "", ["planner.name=fixed", *words])
    for problem in list(PROBLEMS)[1:]:
        for radius, planner in product((400, 800), ("paper", "exact")):
            words = [f"planner.name={planner}", f"cell.distance={{disc={radius}}}"]
            yield Row(f"{problem}, {planner}, R = {radius} m", problem, words)


def make_pilots(folder: Path, workers: int, problem: str, fresh: bool) -> str:
    """The file of a problem's own pilots, nine and two seeds, each as long as it needs, within
    bounds.
    """
    from autofl.forecast.pilot import run_pilots
    from autofl.forecast.pilot_files import write_pilots

    place = folder / (re.sub("[^A-Za-z0-9.]+", "-", problem) + ".json")
    if fresh or not place.exists():
        settings = Row(problem, problem, []).load(
            "seed=201", f"stop.rounds={PROBLEMS[problem].pilot_rounds}"
        )
        with tempfile.TemporaryDirectory() as runs:
            pilots = run_pilots(settings, runs, [settings.data.labels], 2, workers)
        write_pilots(place, pilots, f"python benchmarks/forecast.py, {problem}")
    return str(place)


def foretell(files: dict[str, str], row: Row) -> dict[str, Any]:
    """The forecast of a setting, or why there is none."""
    from autofl.errors import AutoFLError
    from autofl.forecast.predict import forecast

    known = {
        "setting": row.name,
        "data": PROBLEMS[row.problem].data,
        "target_accuracy": PROBLEMS[row.problem].target,
    }
    try:
        coming = forecast(row.load(), PROBLEMS[row.problem].target, files.get(row.problem))
    except AutoFLError as error:
        return {**known, "refused": str(error)}
    return {
        **known,
        "forecast_rounds": coming.rounds[0],
        "forecast_time": coming.sim_time[0],
        "interval": [value if math.isfinite(value) else None for value in coming.sim_time[1:]],
        "outside": coming.outside,
        "short_pilots": coming.short,
        "skew": coming.typical.skew,
    }


def measure(job: tuple[Row, int]) -> float | None:
    """Learning time of one run, None where the target is not reached."""
    from autofl.jobs.run import run

    row, seed = job
    with tempfile.TemporaryDirectory() as folder:
        ran = run(row.load(f"seed={seed}"), Path(folder) / "run")
    return float(ran.manifest["sim_time"]) if ran.manifest["stop"] == "target_accuracy" else None


def is_inside(row: dict[str, Any], time: float | None) -> bool:
    low, high = row["interval"]
    return low <= (math.inf if time is None else time) <= (math.inf if high is None else high)


def score(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage, errors, and the best constant K on the same settings."""
    told = [row for row in rows if "forecast_time" in row]
    inside = [is_inside(row, time) for row in told for time in row["times"]]
    errors = [row["error"] for row in told]

    def within(K: float) -> int:
        pace = [
            (row["forecast_time"] / row["forecast_rounds"], row["measured_time"]) for row in told
        ]
        return sum(abs(K * per_round / measured - 1.0) <= 0.25 for per_round, measured in pace)

    best = max(range(5, 300), key=within)
    return {
        "settings": len(rows),
        "refused": len(rows) - len(told),
        "coverage": sum(inside) / len(inside),
        "runs": len(inside),
        "median_error": statistics.median(abs(error) for error in errors),
        "mean_error": statistics.mean(errors),
        "within_25_percent": sum(abs(error) <= 0.25 for error in errors) / len(told),
        "best_constant": {"rounds": best, "within_25_percent": within(best) / len(told)},
    }


GROUPS = {
    "paper, R|exact, R": "MNIST, fading as printed, R 300 to 900 m, l 3, 4, 7",
    "paper, physical|exact, physical": "MNIST, physical fading, R 150 to 350 m, l 4, 6",
    "d = ": "MNIST, d 8 and 25, 3 and 8 UEs a round, l 3, 6",
    "tau = ": "MNIST, tau 2 and 3, d 8 and 15",
    "10 UEs": "MNIST, n = 10 *",
    "40 UEs": "MNIST, n = 40 *",
    "Dirichlet": "MNIST, Dirichlet 0.5 *",
    "beta = ": "MNIST, beta = 0.1 *",
    "MNIST-5k": "MNIST-5k",
    "CIFAR-10": "CIFAR-10, to 35 % *",
}
"""How the names of settings begin, and what these settings have in common; * has pilots of its own.
"""


def group_of(setting: str) -> str:
    """The label of a setting's group."""
    return next(
        label for starts, label in GROUPS.items() if setting.startswith(tuple(starts.split("|")))
    )


def table_of(result: dict[str, Any]) -> str:
    """The settings in groups, as Markdown: coverage and errors of the forecast, and errors of the
    best constant K.
    """
    best = result["score"]["best_constant"]["rounds"]
    heads = ["settings", "number", "runs", "in the 95 % interval", "median error", "worst error"]
    heads += [f"K = {best}: median", f"K = {best}: worst"]
    lines = [heads, ["---"] * len(heads)]
    told = [row for row in result["rows"] if "forecast_time" in row]
    for label in (*GROUPS.values(), "all"):
        rows = [row for row in told if label in ("all", group_of(row["setting"]))]
        inside = [is_inside(row, time) for row in rows for time in row["times"]]
        errors = [row["error"] for row in rows]
        constant = [
            best * row["forecast_time"] / row["forecast_rounds"] / row["measured_time"] - 1.0
            for row in rows
        ]
        cells = [
            label,
            str(len(rows)),
            str(len(inside)),
            f"{100 * sum(inside) / len(inside):.0f} %",
        ]
        for values in (errors, constant):
            cells += [
                f"{100 * statistics.median(map(abs, values)):.0f} %",
                f"{100 * max(values, key=abs):+.0f} %",
            ]
        lines.append(cells)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def measured_before(path: Path) -> dict[str, list[float | None]]:
    """Times of all seeds of the settings that an earlier command has measured."""
    if not path.exists():
        return {}
    table = json.loads(path.read_text(encoding="utf-8"))
    return (
        {row["setting"]: row["times"] for row in table["rows"]}
        if table["seeds"] == list(SEEDS)
        else {}
    )


def measured_now(
    rows: list[Row],
    seeds: range,
    known: dict[str, list[float | None]],
    part: Path,
    pool: ProcessPoolExecutor,
) -> dict[str, list[float | None]]:
    """Times of every setting and seed; those of an interrupted command are in `part`."""
    times = {
        f"{name}, seed {seed}": time
        for name, its in known.items()
        for seed, time in zip(SEEDS, its, strict=True)
    }
    if part.exists():
        times |= dict(json.loads(line) for line in part.read_text(encoding="utf-8").splitlines())
    left = {f"{row.name}, seed {seed}": (row, seed) for row in rows for seed in seeds}
    jobs = {pool.submit(measure, job): name for name, job in left.items() if name not in times}
    print(f"{len(left) - len(jobs)} runs are there, {len(jobs)} to be made", flush=True)
    for job in as_completed(jobs):
        times[jobs[job]] = job.result()
        with part.open("a", encoding="utf-8") as file:
            file.write(json.dumps([jobs[job], job.result()]) + "\n")
    return {row.name: [times[f"{row.name}, seed {seed}"] for seed in seeds] for row in rows}


def beyond() -> Iterator[Row]:
    for name, overrides in BEYOND.items():
        for place, labels, distance in (
            ("{far}", 2, 1e5),
            ("{half}", 5, 1e5),
            ("{edge}", 2, 960.0),
        ):
            apart = [distance if (0 - u) % 10 < labels else 50.0 for u in range(20)]
            overrides = [text.replace(place, str(apart)) for text in overrides]
        yield Row(name, "", overrides)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--quick", action="store_true", help="four settings, one seed: to see that it runs"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="keep no pilots and runs of earlier commands"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "forecast.json")
    parser.add_argument(
        "--table", action="store_true", help="only print the table of the results that are there"
    )
    given = parser.parse_args()
    if given.table:
        print(table_of(json.loads(given.out.read_text(encoding="utf-8"))), end="")
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table, seeds = list(settings_of()), SEEDS
    if given.quick:
        table, seeds = table[::30] + table[-1:], range(1001, 1002)
    part, folder = given.out.with_suffix(".part"), given.out.parent / f"{given.out.stem}-pilots"
    if given.fresh:
        part.unlink(missing_ok=True)
    with ProcessPoolExecutor(given.workers) as pool:
        needed = [
            problem for problem in OWN_PROBLEMS if any(row.problem == problem for row in table)
        ]
        files = {
            problem: make_pilots(folder, given.workers, problem, given.fresh) for problem in needed
        }
        print(f"pilots of {len(files)} problems are there", flush=True)
        times = measured_now(
            table, seeds, {} if given.fresh else measured_before(given.out), part, pool
        )
        rows = list(pool.map(partial(foretell, files), table))
        flags = pool.map(partial(foretell, {}), beyond())
        outside = [{**row, "flagged": "refused" in row or bool(row["outside"])} for row in flags]
    for row in rows:
        row["times"] = times[row["setting"]]
        row["measured_time"] = statistics.median(
            math.inf if time is None else time for time in row["times"]
        )
        if "forecast_time" in row:
            row["error"] = row["forecast_time"] / row["measured_time"] - 1.0
    second = [row for row in rows if row["data"] == "cifar10"]
    result = {
        "seeds": list(seeds), "score": score(rows), "second_data_set": score(second) if second else None, "rows": rows,
        "beyond": outside,
    }  # fmt: skip
    given.out.write_text(
        json.dumps(result, indent=1).replace("Infinity", "null") + "\n", encoding="utf-8"
    )
    part.unlink(missing_ok=True)
    for row in rows:
        told = f"{row['forecast_time']:.1f} s" if "forecast_time" in row else row["refused"]
        print(
            f"{row['setting']}: {told}, measured {row['measured_time']:.1f} s; {row.get('outside')}"
        )
    for row in outside:
        print(f"{row['setting']}: {'flagged' if row['flagged'] else 'NOT FLAGGED'}")
    print(
        json.dumps({"all": result["score"], "second data set": result["second_data_set"]}, indent=1)
    )


if __name__ == "__main__":
    main()
