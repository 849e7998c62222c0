"""What each aggregator stands: accuracy on MNIST-5k with liars among the UEs, by attack and share.

    python benchmarks/liars.py            # runs what is missing, then writes docs/reliability-aggregation.md
    python benchmarks/liars.py --page     # only the page, from docs/results/liars.json

Every run is kept as it ends, so an interrupted command goes on where it was.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from autofl.config import load_settings
from autofl.engines import use_machine
from autofl.experiments.build import build_simulation
from autofl.experiments.data import load_federated
from autofl.simulation import simulate

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "docs" / "results" / "liars.json", ROOT / "docs" / "reliability-aggregation.md"
ROUNDS, NUM_SELECTED, SEEDS = 40, 10, (1, 2, 3)
SHARES = (0.1, 0.2, 0.3)
RULES = (
    "mean, unchecked",
    "mean",
    "norm-bound",
    "median",
    "trimmed-mean",
    "krum",
    "geometric-median",
    "centred-clipping",
    "mixed",
)
ATTACKS: dict[str, tuple[str, list[str]]] = {
    "sign flip x10": ("sign-flip", ["attack.scale=10.0"]),
    "sign flip x3": ("sign-flip", ["attack.scale=3.0"]),
    "noise x3": ("noise", []),
    "label flip": ("label-flip", []),
    "little is enough": ("little-is-enough", []),
    "replay": ("replay", []),
    "x1000": ("scaled", []),
    "huge": ("huge", []),
    "NaN": ("not-a-number", []),
    "zeros": ("zeros", []),
}
QUICK = ("sign flip x10", "sign flip x3", "noise x3", "label flip", "little is enough")
"""Those that are worth a run for every rule; the others are left out by the checks, or are harmless."""


def settings_of(attack: str | None, share: float, rule: str, seed: int):
    changes = [
        f"seed={seed}",
        f"stop.rounds={ROUNDS}",
        f"evaluation.every={ROUNDS}",
        f"simulation.num_selected={NUM_SELECTED}",
        f"aggregator.name={rule.partition(',')[0]}",
        *(["checks.norm_bound=0.0"] if rule.endswith("unchecked") else []),
    ]
    if attack is not None:
        name, own = ATTACKS[attack]
        changes += [f"attack.name={name}", f"attack.share={share}", *own]
    return load_settings(overrides=changes)


def measure(attack: str | None, share: float, rule: str, seed: int, pools: dict) -> dict:
    """Accuracy at the end, and how often liars and honest UEs were left out."""
    settings = settings_of(attack, share, rule, seed).resolved()
    use_machine(settings.simulation.threads)
    if seed not in pools:
        pools[seed] = load_federated(settings, None)
    sim, begin = build_simulation(settings, data=pools[seed]), time.perf_counter()
    liars = set() if sim.lies is None else set(sim.lies.ue.tolist())
    told = caught = wronged = 0
    record = None
    for record, _ in simulate(sim):
        for ue, arrived in zip(record.ue.tolist(), record.decoded.tolist(), strict=True):
            told += ue in liars
            caught += ue in liars and not arrived
            wronged += ue not in liars and not arrived
    assert record is not None
    assert record.evaluation is not None
    return {
        "adapted": record.evaluation.adapted_accuracy,
        "global": record.evaluation.global_accuracy,
        "stop": record.stop,
        "lies": told,
        "caught": caught,
        "wronged": wronged,
        "seconds": round(time.perf_counter() - begin, 2),
    }


def cases(seeds, attacks):
    for seed in seeds:
        for rule in RULES:
            yield None, 0.0, rule, seed
        for attack in attacks:
            for share in SHARES:
                for rule in RULES if attack in QUICK else ("mean, unchecked", "mean"):
                    yield attack, share, rule, seed


def key_of(attack, share, rule, seed) -> str:
    return f"{attack or 'nobody'}|{share:g}|{rule}|{seed}"


def run_all(seeds, attacks) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    pools: dict = {}
    for case in cases(seeds, attacks):
        if key_of(*case) not in results:
            results[key_of(*case)] = measure(*case, pools)
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            print(key_of(*case), results[key_of(*case)], flush=True)


def mean_of(results, attack, share, rule) -> str:
    values = [
        results[key]["adapted"] if results[key]["stop"] != "diverged" else np.nan
        for seed in SEEDS
        if (key := key_of(attack, share, rule, seed)) in results
    ]
    if not values:
        return "–"
    return "lost" if not np.isfinite(values).all() else f"{100 * np.mean(values):.1f}"


def table(rows, head) -> str:
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


def write_page() -> None:
    results = json.loads(RESULTS.read_text())
    seeds = [seed for seed in SEEDS if key_of(None, 0.0, "mean", seed) in results]
    named = {"mean": "mean (default)"}
    rows = [["nobody", "0 %", *(mean_of(results, None, 0.0, rule) for rule in RULES)]]
    for attack in QUICK:
        rows += [
            [attack, f"{100 * share:g} %", *(mean_of(results, attack, share, rule) for rule in RULES)]
            for share in SHARES
        ]
    caught = []
    for attack in ATTACKS:
        for share in SHARES:
            there = [results[key] for seed in seeds if (key := key_of(attack, share, "mean", seed)) in results]
            if there:
                sums = {name: sum(entry[name] for entry in there) for name in ("lies", "caught", "wronged")}
                last = mean_of(results, attack, share, "mean"), mean_of(results, attack, share, "mean, unchecked")
                caught.append(
                    [attack, f"{100 * share:g} %", f"{sums['caught']} of {sums['lies']}", str(sums["wronged"]), *last]
                )
    text = f"""# What an aggregator stands

Adapted accuracy in % on MNIST-5k after {ROUNDS} rounds of AutoFL with liars among its 20 UEs; 5 labels a UE,
{NUM_SELECTED} selected in a round, mean of {len(seeds)} seed{"s" if len(seeds) > 1 else ""}. Made by `make liars`; raw
values in `results/liars.json`.

{table(rows, ["attack", "liars", *(named.get(rule, rule) for rule in RULES)])}

"mean" is the default: the plan's weighted mean of the updates that pass the server's checks (`checks.norm_bound`:
no longer than 5 (1 + 10/d) medians of the round, by local steps; finite). "mean, unchecked" has the bound switched off;
the other rules are checked too. Rules with a `share` reckon with 30 % (their default). "lost": the model diverged.

One thing no rule can help: of {NUM_SELECTED} UEs drawn from 20 with 6 liars, 5 or more lie in 7 % of the rounds.

## Who is left out

With the default, over all rounds: lies told, lies left out, honest updates left out.

{table(caught, ["attack", "liars", "left out", "honest left out", "accuracy", "unchecked"])}

## How to choose

- Against broken devices and crude lies (NaN, huge values, long flips) the default is enough: they are left out and
  named, and the run is that of the honest, to the bit.
- Lies as long as an honest update pass the bound. `autofl compare --attack sign-flip --attackers 0.2
  --aggregator mixed` measures a rule on your own settings; `autofl parts aggregator` lists the rules, `autofl parts
  attack` the lies.
- Every rule but the mean looks at single updates, and so needs them formed: memory grows with UEs times weights.
"""
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS), help="which attacks")
    words = parser.parse_args()
    if not words.page:
        run_all(SEEDS[: words.seeds], words.attacks)
    write_page()
