"""Rules for the step size compared, with everything else of AutoFL-J as it ships: seconds to a
target accuracy.

python benchmarks/step_sizes.py [--only TASK ...] [--rules RULE ...] [--seeds 101 ...]    runs what
is missing
python benchmarks/step_sizes.py --table                                  docs/step-sizes.md again,
without training
"""

import argparse
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor
from torch.func import grad

from autofl.algorithms import Algorithm, minus
from autofl.algorithms.base import length_of
from autofl.algorithms.hessian import hessian_product
from autofl.config import load_settings
from autofl.config.settings import TABLE_I
from autofl.core.simulation import Simulation, simulate
from autofl.data.batch import Batch, Batches
from autofl.engines import ClientMemory, Updates
from autofl.experiments.build import build_simulation
from autofl.models import Params, loss_of
from autofl.units import Array, IntArray

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "step-sizes.json"
PAGE = Path(__file__).parents[1] / "docs" / "step-sizes.md"


# --------------------------------------------------------------------------------------------------
# -------------- tasks


@dataclass(frozen=True)
class Task:
    """What is learned, and the accuracies, smoothed over 3 evaluations, whose times are compared."""

    words: str
    settings: tuple[str, ...]
    targets: tuple[float, float]
    # else the global model's accuracy: with one label at each UE every adapted model is right
    adapted: bool = True
    rounds: int = 30
    seeds: tuple[int, ...] = (101, 102, 103)


def _task(words: str, data: str, targets: tuple[float, float], *more: str, **settings: Any) -> Task:
    return Task(words, (f"data.name={data}", *more), targets, **settings)


FEW = ("evaluation.test_samples=50", "evaluation.train_samples=50")
TASKS = {
    "mnist": _task("MNIST, l = 5", "mnist", (0.85, 0.90)),
    "fashion": _task("Fashion-MNIST, l = 5", "fashion-mnist", (0.80, 0.84)),
    "mnist5k": _task("MNIST-5k, l = 5", "mnist5k", (0.85, 0.90)),
    "mnist-iid": _task(
        "MNIST, i.i.d.", "mnist", (0.85, 0.90), "data.partition=iid", seeds=(101, 102)
    ),
    "fashion-iid": _task(
        "Fashion-MNIST, i.i.d.",
        "fashion-mnist",
        (0.80, 0.84),
        "data.partition=iid",
        seeds=(101, 102),
    ),
    "mnist-1": _task(
        "MNIST, l = 1, global",
        "mnist",
        (0.60, 0.70),
        "data.labels=1",
        adapted=False,
        seeds=(101, 102),
    ),
    "fashion-1": _task(
        "Fashion-MNIST, l = 1, global",
        "fashion-mnist",
        (0.50, 0.60),
        "data.labels=1",
        adapted=False,
        seeds=(101, 102),
    ),
    "cifar10": _task(
        "CIFAR-10 LeNet-5, l = 5", "cifar10", (0.45, 0.50), *FEW, rounds=16, seeds=(101,)
    ),
}


# --------------------------------------------------------------------------------------------------
# -------------- rules


@dataclass(frozen=True)
class Here:
    """What a rule may look at when a round begins."""

    sim: Simulation
    algorithm: Any  # as it ships, in this round
    k: int
    sent: Params
    ue: IntArray

    def fresh(self, num: int) -> Iterator[Batch]:
        """`num` samples of each UE of the round, drawn apart from those it trains with."""
        ones = np.ones(len(self.ue), dtype=np.int64)
        batch = self.sim.data.draw(
            self.ue, num * ones, ones, self.sim.seed + 1000, self.k, (1.0, 0.0, 0.0)
        ).take(np.arange(len(self.ue)))
        for row in range(len(self.ue)):
            yield Batch(batch.x[0, row, 0], batch.y[0, row, 0], batch.mask[0, row, 0])


def part(batch: Batch, begin: int, end: int | None = None) -> Batch:
    return Batch(batch.x[begin:end], batch.y[begin:end], batch.mask[begin:end])


class Rule:
    """The algorithm of each round, and what is learned from the round's updates; one object for
    each run.
    """

    def algorithm(self, here: Here) -> Algorithm:
        """As it ships."""
        shipped: Algorithm = here.algorithm
        return shipped

    def see(self, changes: list[Tensor]) -> None:
        """Every update of the round, in one row each, before it is compressed."""


@dataclass
class Longer(Rule):
    """The shipped rule with another constant."""

    factor: float

    def algorithm(self, here: Here) -> Algorithm:
        assert here.algorithm.unit
        return replace(here.algorithm, outer_lr=self.factor * here.algorithm.outer_lr)


@dataclass
class Tried(Longer):
    """The constant is corrected at the start of each round, before anybody moves.

    UEs say what steps of a thirtieth to thirty times the length along their own gradient do to
    their loss on samples that nobody used; all take the length after which the mean is least. The
    lengths are a factor of 2.6 apart and wider
    than any error that is tried: a guess ten times too long has neither the right length among them
        nor at their end.
    """

    def algorithm(self, here: Here) -> Algorithm:
        algorithm, loss = super().algorithm(here), loss_of(here.sim.model)
        lengths = np.geomspace(1.0 / 30.0, 30.0, 8) * algorithm.outer_lr
        said = np.zeros(len(lengths))
        for batch in here.fresh(20):
            gradient = grad(loss)(here.sent, part(batch, 0, 10))
            whole = float(length_of(gradient))
            if whole > 0.0:
                said += [
                    float(loss(minus(here.sent, x / whole, gradient), part(batch, 10)))
                    for x in lengths
                ]
        return replace(algorithm, outer_lr=float(lengths[np.argmin(said)]))


@dataclass
class Beta(Rule):
    """A rule that gives beta; gradients are cut at 5, as by hand."""

    first: float = 0.6
    now: float = field(default=0.0, init=False)

    def algorithm(self, here: Here) -> Algorithm:
        self.now = self.beta(here)
        return replace(here.algorithm, outer_lr=self.now, unit=False, grad_clip=5.0)

    def beta(self, here: Here) -> float:
        raise NotImplementedError


@dataclass
class Curvature(Beta):
    """beta_k = c / kappa of the round before, kappa = mean over UEs of <v, H v> / |v|^2, v and H on
    other samples.
    """

    share: float = 0.5  # c
    kappa: float | None = field(default=None, init=False)

    def beta(self, here: Here) -> float:
        loss, found = loss_of(here.sim.model), []
        for batch in here.fresh(20):
            v = grad(loss)(here.sent, part(batch, 0, 10))
            product = hessian_product(loss, here.sent, v, part(batch, 10))
            found.append(
                float(sum((v[name] * product[name]).sum() for name in v)) / float(length_of(v)) ** 2
            )
        now = max(float(np.mean(found)), 0.02)  # a saddle is no reason for a step without end
        before, self.kappa = self.kappa or now, now
        return self.share / before


@dataclass
class LateLineSearch(Beta):
    """UEs say what half, the full and twice the last step did to the adapted loss on samples that
    nobody used.

    A parabola through the three gives the best length; beta is multiplied by its square root, and
    never below 0.02.
    """

    last: Params | None = field(default=None, init=False)

    def beta(self, here: Here) -> float:
        beta = self.now or self.first
        if self.last is not None:
            move, loss, tried = (
                minus(here.sent, 1.0, self.last),
                loss_of(here.sim.model),
                (0.5, 1.0, 2.0),
            )
            said = np.zeros(3)
            for batch in here.fresh(20):
                for index, length in enumerate(tried):
                    there = minus(self.last, -length, move)
                    adapted = minus(
                        there, here.algorithm.inner_lr, grad(loss)(there, part(batch, 0, 10))
                    )
                    said[index] += float(loss(adapted, part(batch, 10)))
            a, b, _ = np.polyfit(tried, said, 2)
            best = -b / (2.0 * a) if a > 0.0 else tried[int(np.argmin(said))]
            beta = max(beta * math.sqrt(min(max(best, 0.25), 4.0)), 0.02)
        self.last = here.sent
        return beta


@dataclass
class DistanceOverGradients(Beta):
    """beta_k = max_j |w_j - w_1| / sqrt(sum_j |G_j|^2), G_j = (w_j - w_{j+1}) / beta_j (DoG, Ivgi
    et al. 2023).
    """

    start: Params | None = field(default=None, init=False)
    last: Params | None = field(default=None, init=False)
    farthest: float = field(default=0.0, init=False)
    squares: float = field(default=0.0, init=False)

    def beta(self, here: Here) -> float:
        if self.start is None or self.last is None:
            self.start, self.last = here.sent, here.sent
            return self.first
        self.farthest = max(self.farthest, float(length_of(minus(here.sent, 1.0, self.start))))
        self.squares += (float(length_of(minus(here.sent, 1.0, self.last))) / self.now) ** 2
        self.last = here.sent
        return self.farthest / math.sqrt(self.squares)


@dataclass
class Noise(Beta):
    """beta_k = beta_1 f_{k-1} / f_1, f = S / (S + N/m): S the squared length that m updates share,
    N the rest.
    """

    memory: float = 0.6
    sums: Array = field(default_factory=lambda: np.zeros(2), init=False)
    share: float | None = field(default=None, init=False)

    def beta(self, here: Here) -> float:
        if self.sums[1] == 0.0:
            return self.first
        now = max(float(self.sums[0]), 0.0) / float(self.sums[1])
        self.share = self.share or max(now, 1e-3)
        return self.first * min(max(now / self.share, 0.05), 1.0)

    def see(self, changes: list[Tensor]) -> None:
        rows = torch.stack(changes).double() / self.now
        m, each = len(rows), float((rows**2).sum())
        whole = float((rows.sum(dim=0) ** 2).sum())
        shared = (whole - each) / max(m * (m - 1), 1)
        self.sums = self.memory * self.sums + np.array([shared, whole / m**2])


# --------------------------------------------------------------------------------------------------
# rules in the engine


@dataclass
class Stepped:
    """An engine that lets a rule choose the algorithm of each round: nothing else of the run knows
    of it.
    """

    sim: Simulation
    rule: Rule
    k: int = 0

    def __call__(
        self,
        algorithm: Algorithm,
        sent: Params,
        batches: Batches,
        ue: IntArray,
        memory: ClientMemory | None = None,
    ) -> Updates:
        self.k += 1
        chosen = self.rule.algorithm(Here(self.sim, algorithm, self.k, sent, ue))
        if isinstance(self.rule, Noise):
            updates = self.sim.engine(chosen, sent, batches, ue, memory)
            self.rule.see([change for _, change in updates])
        return self.sim.engine(chosen, sent, batches, ue, memory)


def _learning(**values: object) -> tuple[str, ...]:
    return tuple(f"learning.{name}={value}" for name, value in values.items())


@dataclass(frozen=True)
class Entry:
    """A rule as it stands in the table: its words, settings beyond the task's, and what chooses the
    algorithm.
    """

    words: str
    settings: Callable[[str], tuple[str, ...]] = lambda data: ()
    make: Callable[[], Rule] | None = None


HAND = {"outer_lr": 0.25, "lr_decay": 0.1, "grad_clip": 5.0, "guard": 1.0}


def _paper(data: str) -> tuple[str, ...]:
    _, beta = TABLE_I.get(data, TABLE_I["mnist"])
    return _learning(outer_lr=beta, lr_decay=0.0, grad_clip=0.0, guard=0.0)


RULES = {
    "shipped": Entry("**a share of the model's length (shipped)**"),
    "curvature": Entry("curvature along the step", make=Curvature),
    "line": Entry("UEs as a line search", make=LateLineSearch),
    "dog": Entry("distance over gradients", make=DistanceOverGradients),
    "noise": Entry("noise of the updates", make=Noise),
    "hand": Entry("by hand: beta 0.25, decay 0.1, clip 5", lambda data: _learning(**HAND)),
    "paper": Entry("the paper's beta, no guard", _paper),
    "shipped-0.03": Entry("shipped, alpha 0.03", lambda data: _learning(inner_lr=0.03)),
    "shipped-0.1": Entry("shipped, alpha 0.1", lambda data: _learning(inner_lr=0.1)),
    "hand-0.03": Entry("by hand, alpha 0.03", lambda data: _learning(inner_lr=0.03, **HAND)),
    "hand-0.1": Entry("by hand, alpha 0.1", lambda data: _learning(inner_lr=0.1, **HAND)),
    "times-10": Entry("the constant times 10", make=lambda: Longer(10.0)),
    "times-3": Entry("times 3", make=lambda: Longer(3.0)),
    "by-3": Entry("divided by 3", make=lambda: Longer(1.0 / 3.0)),
    "by-10": Entry("divided by 10", make=lambda: Longer(0.1)),
    "beta-0.6": Entry("beta 0.6, bounded", lambda data: _learning(outer_lr=0.6)),
    "beta-6": Entry("beta 6, bounded", lambda data: _learning(outer_lr=6.0)),
    "beta-0.06": Entry("beta 0.06, bounded", lambda data: _learning(outer_lr=0.06)),
}
RULES |= {
    f"tried-{factor:g}": Entry(words, make=lambda factor=factor: Tried(factor))
    for factor, words in (
        (1.0, "tried by UEs before each round"),
        (10.0, "the same, the constant times 10"),
        (0.1, "the same, divided by 10"),
    )
}
RULES |= {
    f"{name}-{first:g}": Entry(
        f"{RULES[name].words}, first beta {first:g}",
        make=lambda make=make, first=first: make(first),
    )
    for name, make in (("line", LateLineSearch), ("dog", DistanceOverGradients), ("noise", Noise))
    for first in (6.0, 0.06)
}
RULES |= {  # what the one constant of each rule was chosen from, on seed 1
    **{f"curvature-{c}": Entry("", make=lambda c=c: Curvature(share=c)) for c in (0.25, 1.0)},
    **{f"line-{b}": Entry("", make=lambda b=b: LateLineSearch(first=b)) for b in (0.1, 0.25)},
    **{f"dog-{b}": Entry("", make=lambda b=b: DistanceOverGradients(first=b)) for b in (0.1, 0.25)},
    **{f"noise-{b}": Entry("", make=lambda b=b: Noise(first=b)) for b in (0.25, 1.2)},
}
COMPARED = ("shipped", "curvature", "line", "dog", "noise", "hand", "paper")
ALPHAS = ("shipped", "shipped-0.03", "shipped-0.1", "hand", "hand-0.03", "hand-0.1")
WRONG = (
    *("shipped", "times-10", "times-3", "by-3", "by-10", "tried-1", "tried-10", "tried-0.1"),
    *(
        "line-6",
        "line-0.06",
        "dog-6",
        "dog-0.06",
        "noise-6",
        "noise-0.06",
        "beta-0.6",
        "beta-6",
        "beta-0.06",
    ),
)
MAIN = ("mnist", "fashion")


# --------------------------------------------------------------------------------------------------
# ----- runs and times


def measure(task: Task, rule: Entry, seed: int) -> dict[str, Any]:
    """Simulated seconds and rounds to the task's targets, None where a run does not get there."""
    name = task.settings[0].removeprefix("data.name=")
    own = [f"seed={seed}", "arm=autofl-j", "evaluation.every=1", f"stop.rounds={task.rounds}"]
    sim = build_simulation(load_settings(overrides=[*own, *task.settings, *rule.settings(name)]))
    if rule.make is not None:
        sim = replace(sim, engine=Stepped(sim, rule.make()))

    begin, times, accuracy = time.process_time(), [], []
    for record, _ in simulate(sim):
        if record.evaluation is None:
            continue
        times.append(record.sim_time)
        found = record.evaluation
        accuracy.append(found.adapted_accuracy if task.adapted else found.global_accuracy)
        if len(accuracy) >= 3 and np.mean(accuracy[-3:]) >= max(task.targets):
            break
    smooth = np.convolve(accuracy, np.ones(3) / 3.0, "valid")
    hits = [np.flatnonzero(smooth >= target) for target in task.targets]
    return {
        "seconds": [float(times[hit[0] + 2]) if len(hit) else None for hit in hits],
        "rounds": [int(hit[0] + 2) if len(hit) else None for hit in hits],
        "last": float(smooth[-1]),
        "host": round(time.process_time() - begin, 1),
    }


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def wanted() -> Iterator[tuple[str, str, int]]:
    """Every task, rule and seed of the page."""
    rest = tuple(task for task in TASKS if task not in (*MAIN, "cifar10"))
    parts = (
        (COMPARED, MAIN),
        (WRONG, MAIN),
        (COMPARED, rest),
        (ALPHAS, MAIN),
        (COMPARED + WRONG[1:5], ("cifar10",)),
    )
    for rules, tasks in parts:
        for task in tasks:
            for seed in TASKS[task].seeds:
                for rule in rules:
                    yield task, rule, seed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="only write the tables again")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--seeds", nargs="+", type=int, help="look at other seeds; nothing is kept")
    given = parser.parse_args()

    if given.seeds:
        for task in given.only:
            for rule in given.rules:
                for seed in given.seeds:
                    print(task, rule, seed, measure(TASKS[task], RULES[rule], seed), flush=True)
        return
    for task, rule, seed in wanted():
        kept = read().get(task, {}).get(rule, {})
        if given.table or task not in given.only or rule not in given.rules or str(seed) in kept:
            continue
        measured = measure(TASKS[task], RULES[rule], seed)
        results = read()
        results.setdefault(task, {}).setdefault(rule, {})[str(seed)] = measured
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(task, rule, seed, measured, flush=True)
    if PAGE.exists():
        PAGE.write_text(with_tables(PAGE.read_text(), read()))


# --------------------------------------------------------------------------------------------------
# ------------- tables


def median(results: dict[str, Any], task: str, rule: str, target: int) -> float:
    """Median over seeds, inf where most runs do not get there, nan where nothing was measured."""
    runs = results.get(task, {}).get(rule, {}).values()
    seconds = [
        math.inf if run["seconds"][target] is None else run["seconds"][target] for run in runs
    ]
    return float(np.median(seconds)) if seconds else math.nan


def cell(results: dict[str, Any], task: str, rule: str) -> str:
    """Both medians, a dash for a target that most runs miss, and how many seeds where it is not all
    of them.
    """
    both = [median(results, task, rule, target) for target in (0, 1)]
    if any(math.isnan(value) for value in both):
        return ""
    num, seeds = len(results[task][rule]), len(TASKS[task].seeds)
    few = "" if num >= seeds else f" ({num} of {seeds} seeds)"
    return " / ".join("–" if math.isinf(value) else f"{value:.3g}" for value in both) + few


def table(results: dict[str, Any], rules: tuple[str, ...], tasks: tuple[str, ...]) -> str:
    head = [
        f"{TASKS[t].words}, to {' / '.join(f'{100 * x:.0f}' for x in TASKS[t].targets)} %"
        for t in tasks
    ]
    rows = [[RULES[rule].words, *(cell(results, task, rule) for task in tasks)] for rule in rules]
    rows = [row for row in rows if any(row[1:])]  # those measured
    lines = [["", *head], ["---"] * (len(tasks) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_tables(page: str, results: dict[str, Any]) -> str:
    """The page with its tables drawn from the results."""
    five = ("mnist", "fashion", "mnist5k", "cifar10")
    tables = {
        "rules": table(results, COMPARED, five),
        "labels": table(results, COMPARED, tuple(task for task in TASKS if task not in five)),
        "alpha": table(results, ALPHAS, MAIN),
        "wrong": table(results, WRONG, MAIN),
    }
    for name, drawn in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)"
        page = re.sub(
            pattern,
            lambda found, drawn=drawn: f"{found[1]}\n{drawn}\n\n{found[2]}",
            page,
            flags=re.DOTALL,
        )
    return page


if __name__ == "__main__":
    main()
