"""Every decision is one: what the joint planner's defaults are worth, against before, constants and
its own parts.

    python benchmarks/decisions.py [--old TREE] [--only defaults parts search judged guesses images]
    [--again]
    python benchmarks/decisions.py --jobs 2     # two runs at a time
    python benchmarks/decisions.py --table      # only redraws docs/decisions.md

Real MNIST, Fashion-MNIST and CIFAR-10 are read from AUTOFL_DATA. Each run is kept in
docs/results/decisions as soon as it is made; what is there is not run again. TREE is a checkout of
commit 724498f, the version before.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from decisions_page import write_page

from autofl.rng import stream
from autofl_paper.joint import CELLS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "decisions"
TARGETS = {"mnist": (0.85, 0.90), "fashion-mnist": (0.80, 0.84), "cifar10": (0.45, 0.50)}
SEEDS = tuple(range(51, 61))
ROUNDS = 100
"""At most, of a run."""
STEPS = ("inner_lr", "outer_lr", "lr_decay", "grad_clip", "guard")


@dataclass(frozen=True)
class Task:
    """A cell and a data set: a row of the tables."""

    name: str
    data: str = "mnist"
    scenario: str | None = None
    settings: tuple[str, ...] = ()
    band: float = 5e6  # [Hz] that five UEs have
    at_most: tuple[float, float] | None = (
        None  # simulated seconds to the two targets that were asked for
    )
    has_before: bool = True  # whether the version before has such settings
    seeds: tuple[int, ...] = SEEDS
    old_seeds: tuple[int, ...] = SEEDS[:6]

    def __str__(self) -> str:
        return f"{self.name}, {self.data}"

    @property
    def targets(self) -> tuple[float, float]:
        return TARGETS[self.data]

    @property
    def goals(self) -> str:
        return " / ".join(f"{100 * target:g} %" for target in TARGETS[self.data])


IMAGES = ("evaluation.test_samples=100",)
WIDE = ("cell.total_bandwidth=20e6",)
TASKS = (
    Task("paper", at_most=(0.022, 0.055)),
    Task("paper", "fashion-mnist", at_most=(0.021, 0.042)),
    Task("paper, 20 MHz", settings=WIDE, at_most=(0.0155, 0.026), has_before=False),
    Task(
        "paper, 20 MHz", "fashion-mnist", settings=WIDE, at_most=(0.0105, 0.024), has_before=False
    ),
    Task("umi-phones", scenario="umi-phones", band=5.4e6, at_most=(0.075, 0.18)),
    Task("factory-hall", scenario="factory-hall", at_most=(0.11, 0.28)),
    *(
        Task(name, scenario=name)
        for name in ("uma-phones", "rural-macro", "narrowband-sensors", "vehicles")
    ),
    *(Task(name, settings=CELLS[name]) for name in ("physical", "tight", "mixed")),
    Task("paper", "cifar10", settings=IMAGES, seeds=SEEDS[:3], old_seeds=SEEDS[:3]),
)
BY_NAME = {str(task): task for task in TASKS}
FRONT = ("paper, mnist", "umi-phones, mnist")
"""The tasks of the factor in parts, and of the other end of the front."""
JUDGED = tuple(
    BY_NAME[name]
    for name in (
        "paper, mnist",
        "paper, fashion-mnist",
        "physical, mnist",
        "umi-phones, mnist",
        "mixed, mnist",
    )
)
"""The cells in which constants are searched."""
LIMIT = {"paper": 0.15, "physical": 0.15, "umi-phones": 0.4, "mixed": 0.6}
"""Simulated seconds after which a run of the search is given up."""
FEWER = ("evaluation.test_samples=200",)
"""Of each UE, in the search."""


@dataclass
class Lab:
    """What has been measured, by file and key, and the programs that measure."""

    old: Path | None
    again: bool
    most: int = len(SEEDS)  # seeds of an arm
    cells: tuple[str, ...] = ()  # those to measure; none for all
    jobs: int = 1  # runs at a time
    mine: threading.local = field(
        default_factory=threading.local
    )  # a thread has programs of its own
    writing: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def pool(self):
        """Threads that live as long as this, so that a program reads its data once."""
        return ThreadPoolExecutor(self.jobs)

    def among(self, tasks):
        """Those of the tasks that are asked for; a name stands for a task."""
        tasks = [BY_NAME[task] if isinstance(task, str) else task for task in tasks]
        return [
            task
            for task in tasks
            if not self.cells or task.name in self.cells or str(task) in self.cells
        ]

    def rows(self, file):
        path = RESULTS / f"{file}.json"
        return json.loads(path.read_text()) if path.is_file() else {}

    def each(self, orders: Iterable[Callable]) -> list:
        """The rows of all orders, in their order; `jobs` of them are measured at a time."""
        return list(self.pool.map(lambda order: order(), orders))

    def ask(self, tree, order):
        programs = self.mine.__dict__
        if tree not in programs:
            source = (ROOT if tree == "new" else self.old) / "src"
            environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, str(ROOT / "benchmarks" / "decisions_run.py")]
            programs[tree] = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        program = programs[tree]
        print(json.dumps(order), file=program.stdin, flush=True)
        answer = program.stdout.readline()
        if not answer:
            sys.exit(f"decisions_run.py could not do this: {order['settings']}")
        return json.loads(answer)

    def run(self, file, key, task, seed, settings=(), tree="new", limit=None, **more):
        """The row of this key, measured if it is not there."""
        rows = self.rows(file)
        if key in rows and not self.again:
            return rows[key]
        targets = TARGETS[task.data]
        told = [
            f"data.name={task.data}",
            f"stop.target_accuracy={targets[1]}",
            f"stop.rounds={ROUNDS}",
        ]
        told += [] if limit is None else [f"stop.sim_time={limit}"]
        order = {"kind": "run", "seed": seed, "scenario": task.scenario, "targets": targets, **more}
        row = self.ask(tree, order | {"settings": [*told, *task.settings, *settings]})
        self.keep(file, key, {"settings": list(settings), **row})
        return row

    def keep(self, file, key, row):
        with self.writing:
            RESULTS.mkdir(parents=True, exist_ok=True)
            rows = self.rows(file) | {key: {name: shortened(value) for name, value in row.items()}}
            lines = [f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
            part = RESULTS / f"{file}.part"
            part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
            part.replace(RESULTS / f"{file}.json")
        print(file, key, row.get("time", row.get("accuracy")), f"{row['cpu']:.1f} s", flush=True)


def shortened(value):
    """Six digits are enough."""
    if isinstance(value, list):
        return [shortened(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def defaults(lab, tasks=TASKS[:-1]):
    """Points 1, 4 and 6: what comes without a setting, the version before, and the front's other
    end.
    """
    tasks = lab.among(tasks)
    plain = ("arm=autofl-j",)
    orders = []
    for task in tasks:
        for seed in task.seeds[: lab.most]:
            orders.append(partial(lab.run, "defaults", f"{task}|now|{seed}", task, seed, plain))

    # A run of the version before takes five times as long, so no cell waits for another's last
    # seeds.
    comparable = sorted(
        (task for task in tasks if task.has_before), key=lambda task: task.at_most is not None
    )
    for seed in SEEDS[: lab.most] if lab.old is not None else ():
        for task in comparable:
            if seed in task.old_seeds:
                orders.append(
                    partial(lab.run, "defaults", f"{task}|before|{seed}", task, seed, plain, "old")
                )

    thrifty = (*plain, "planner.thrift=1.0")
    for task in tasks:
        for seed in SEEDS[: lab.most] if str(task) in FRONT else ():
            orders.append(
                partial(lab.run, "defaults", f"{task}|thrift 1|{seed}", task, seed, thrifty)
            )
    lab.each(orders)


def images(lab):
    """The same with LeNet-5, whose rounds take ten times as long to compute."""
    defaults(lab, TASKS[-1:])


AUTO = tuple(f"learning.{name}=auto" for name in STEPS)
UNDECIDED = tuple(f"planner.{name}=false" for name in ("admission", "frequency", "band", "bits"))


def chain(task):
    """AutoFL as printed, and one more decision at a time; the last is AutoFL-J."""
    all_ues = ("simulation.num_selected=20", f"cell.total_bandwidth={task.band}")
    bits = ("compressor.name=entropy", "compressor.bits=0.2")
    whole = ("downlink.name=none",) if task.scenario else ()
    arms = {
        "AutoFL as printed": ("arm=autofl",),
        "step sizes by the rule": ("arm=autofl", *AUTO),
        "all UEs, in the same band": ("arm=autofl", *AUTO, *all_ues),
        "0.2 bit a weight, coded": ("arm=autofl", *AUTO, *all_ues, *bits),
        "local steps and samples": ("arm=autofl-j", *UNDECIDED, *all_ues, *bits, *whole),
        "band, power, frequency": (
            "arm=autofl-j",
            *UNDECIDED[:1],
            *UNDECIDED[3:],
            *bits,
            *whole,
        ),
        "admission, bits of each round": ("arm=autofl-j", *whole),
    }
    return arms | ({"the downlink": ("arm=autofl-j",)} if task.scenario else {})


def parts(lab):
    """Point 3: the factor over AutoFL as printed, one decision after the other."""
    orders = []
    for task in lab.among(FRONT):
        for arm, settings in chain(task).items():
            for seed in SEEDS[:5][: lab.most]:
                orders.append(
                    partial(lab.run, "parts", f"{task}|{arm}|{seed}", task, seed, settings)
                )
    lab.each(orders)


NUM_DRAWN, SEARCH_SEEDS, KEPT = 60, (201, 202, 203), (60, 15, 5)
CHOICES = {
    "num_selected": (3, 5, 8, 12, 16, 20),
    "local_steps": (1, 2, 3, 4, 6, 8, 12, 16),
    "num_samples": (5, 8, 10, 12, 16, 20),
    "bits": (0.1, 0.15, 0.2, 0.3, 0.4, 0.8, 1.6),
    "downlink": (
        "none",
        "quantise 4",
        "entropy 2.0",
        "entropy 1.0",
        "entropy 0.5",
        "nearest 1.0",
        "nearest 0.5",
    ),
    "inner_lr": (0.03, 0.06, 0.1, 0.2),
    "outer_lr": (0.1, 0.25, 0.4, 0.6, 1.0),
    "lr_decay": (0.0, 0.1, 0.3, 1.0),
}


def drawn(number):
    """A setting of the search: every choice at random."""
    rng = stream(0, "search", number)
    return {name: values[int(rng.integers(len(values)))] for name, values in CHOICES.items()}


def constants(task, choice):
    """The settings of a run in which nothing is decided; the band is the same."""
    name, _, bits = choice["downlink"].partition(" ")
    down = (f"downlink.name={name}", *((f"downlink.bits={bits}",) if bits else ()))
    return (
        "arm=autofl-j",
        "planner.name=fixed",
        f"planner.num_samples={choice['num_samples']}",
        f"simulation.num_selected={choice['num_selected']}",
        f"cell.total_bandwidth={task.band}",
        "compressor.name=entropy",
        f"compressor.bits={choice['bits']}",
        *(
            f"learning.{name}={choice[name]}"
            for name in ("local_steps", "inner_lr", "outer_lr", "lr_decay")
        ),
        "learning.grad_clip=0.0",
        "learning.guard=0.0",
        *(down if task.scenario else ()),
    )


MEASURED_ALPHA = ("learning.inner_lr=auto",)


def score(row, limit):
    """Mean logarithm of the two times; what was not reached counts as twice the limit."""
    return sum(math.log(time or 2.0 * limit) for time in row["time"]) / 2.0


def search(lab):
    """Point 2, the search: all settings on one seed, the best of them on a second, of those on a
    third.
    """
    for task in lab.among(JUDGED):
        left, scores = list(range(NUM_DRAWN)), {}
        limit = LIMIT[task.name]
        for num, seed in zip(KEPT, SEARCH_SEEDS, strict=True):
            left = sorted(left, key=lambda number: np.mean(scores[number]) if scores else number)[
                :num
            ]
            orders = []
            for number in left:
                settings = (*constants(task, drawn(number)), *FEWER)
                key = f"{task}|{number}|{seed}"
                orders.append(partial(lab.run, "search", key, task, seed, settings, limit=limit))
            for number, row in zip(left, lab.each(orders), strict=True):
                scores.setdefault(number, []).append(score(row, limit))

        # The best five again, with the one advantage that AutoFL-J's UEs have and constants do not.
        with_alpha = {}
        for number in left:
            settings = (*constants(task, drawn(number)), *MEASURED_ALPHA, *FEWER)
            asked = partial(lab.run, "search", task=task, settings=settings, limit=limit)
            orders = [
                partial(asked, f"{task}|{number}, alpha measured|{seed}", seed=seed)
                for seed in SEARCH_SEEDS
            ]
            with_alpha[number] = [score(row, limit) for row in lab.each(orders)]
        best = min(left, key=lambda number: np.mean(scores[number]))
        other = min(left, key=lambda number: np.mean(with_alpha[number]))
        lab.keep(
            "found",
            str(task),
            {"constants": best, "alpha measured": other, **drawn_of(best, other), "cpu": 0.0},
        )


def drawn_of(best, other):
    return {"choice": drawn(best), "choice with alpha": drawn(other)}


ALONE_STEPS = (0.03, 0.1, 0.3)


def judged(lab):
    """Point 2: the best constants, FedAvg-J and UEs alone, on the seeds of the tables."""
    found = lab.rows("found")
    for task in (task for task in lab.among(JUDGED) if str(task) in found):
        ours = lab.rows("defaults")
        arms = {
            "constants": constants(task, drawn(found[str(task)]["constants"])),
            "constants, alpha measured": (
                *constants(task, drawn(found[str(task)]["alpha measured"])),
                *MEASURED_ALPHA,
            ),
            "FedAvg-J": ("arm=fedavg-j",),
        }
        limit = 10.0 * LIMIT[task.name]
        orders = []
        for arm, settings in arms.items():
            for seed in SEEDS[: lab.most]:
                orders.append(
                    partial(
                        lab.run, "judged", f"{task}|{arm}|{seed}", task, seed, settings, limit=limit
                    )
                )
        lab.each(orders)
        lab.each(
            partial(alone, lab, task, seed, ours) for seed in (SEARCH_SEEDS[0], *SEEDS[: lab.most])
        )


def alone(lab, task, seed, ours):
    """UEs that train by themselves, with the time and energy that AutoFL-J needed under this seed."""
    key = f"{task}|alone|{seed}"
    if key in lab.rows("judged") and not lab.again:
        return
    own = ours[f"{task}|now|{seed if seed in SEEDS else SEEDS[0]}"]
    budgets = [[time, energy / 20] for time, energy in zip(own["time"], own["energy"], strict=True)]
    told = ["arm=autofl-j", f"data.name={task.data}", *task.settings]
    order = {
        "kind": "alone",
        "seed": seed,
        "scenario": task.scenario,
        "settings": told,
        "budgets": budgets,
    }
    lab.keep("judged", key, lab.ask("new", order | {"steps": ALONE_STEPS}))


def guesses(lab):
    """Point 4: constants of the rule for step sizes that are ten times too large, or too small."""
    orders = []
    for task in lab.among(("paper, mnist", "paper, fashion-mnist")):
        for constant in ("LONGEST", "INNER_LR"):
            for factor in (10.0, 0.1):
                for seed in SEEDS[:5][: lab.most]:
                    key = f"{task}|{constant} × {factor:g}|{seed}"
                    asked = partial(lab.run, "guesses", key, task, seed, ("arm=autofl-j",))
                    orders.append(partial(asked, times={constant: factor}))
    lab.each(orders)


STUDIES = {
    "defaults": defaults,
    "parts": parts,
    "search": search,
    "judged": judged,
    "guesses": guesses,
    "images": images,
}


def write(page: Path, results: Path) -> None:
    """The page from what has been measured."""
    chains = {str(task): list(chain(task)) for task in TASKS}
    write_page(page, results, TASKS, JUDGED, chains, ALONE_STEPS, SEARCH_SEEDS[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="a checkout of commit 724498f")
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument(
        "--cells", nargs="+", default=[], help="such as umi-phones or 'paper, mnist'"
    )
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="at most so many of each arm")
    parser.add_argument("--again", action="store_true", help="measure also what is there")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--table", action="store_true", help="measure nothing, only write the page")
    given = parser.parse_args()
    lab = Lab(given.old, given.again, given.seeds, tuple(given.cells), given.jobs)
    for name in () if given.table else given.only:
        STUDIES[name](lab)
    write(ROOT / "docs" / "decisions.md", RESULTS)


if __name__ == "__main__":
    main()
