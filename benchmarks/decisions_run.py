"""Runs of `decisions.py`: orders come in as lines of JSON, what was measured goes out, a line for
each.

It is a program of its own, since an earlier version of AutoFL is measured with it too: PYTHONPATH
    says which.
"""

import json
import os
import sys
import time
from functools import lru_cache

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

import autofl.experiments.build as build
from autofl.config import CellSettings, Settings, load_settings
from autofl.core.simulation import simulate
from autofl.data.batch import Batch, MetaBatch
from autofl.experiments.data import load_federated, loaded_from
from autofl.quality import reaches

BATCH = 10
"""Samples of a step of a UE that trains alone."""
OVER = 1e-9
"""Relative excess over E_max that is rounding."""


def settings_of(order):
    told = [f"seed={order['seed']}", "evaluation.every=1", *order["settings"]]
    return load_settings(None, told, order["scenario"])


def built(order):
    """The simulation; samples are read, and dealt out under a seed, once for many runs."""
    settings = settings_of(order)
    return build.build_simulation(
        settings, data=dealt_out(settings.data, settings.cell.count, settings.seed)
    )


@lru_cache(maxsize=3)
def dealt_out(data, num_ue, seed):
    settings = Settings(data=data, cell=CellSettings(num_ue=num_ue), seed=seed)
    return load_federated(settings, loaded_from(data.source())[0])


def measured(order):
    """Simulated seconds, energy of all UEs and rounds to each target, and what went wrong on the
    way.
    """
    usual = {name: getattr(build, name) for name in order.get("times", {})}
    for name, factor in order.get("times", {}).items():
        setattr(build, name, factor * usual[name])  # a constant of the rule that is wrong
    try:
        start, records = time.process_time(), []
        sim = built(order)
        for record, _ in simulate(sim):
            records.append(record)
    finally:
        for name, value in usual.items():
            setattr(build, name, value)
    energy = np.cumsum([record.cost.energy.sum() for record in records])
    took_part = np.cumsum([(record.cost.energy > 0.0).sum() for record in records])
    judged = [place for place, record in enumerate(records) if record.evaluation is not None]
    accuracy = np.array([records[place].evaluation.adapted_accuracy for place in judged])
    over = [
        record.cost.energy > sim.cell.max_energy[record.ue] * (1.0 + OVER) for record in records
    ]
    answer = {"time": [], "energy": [], "round": [], "ue_rounds": []}
    for target in order["targets"]:
        passed = np.flatnonzero(reaches(accuracy, target))
        place = judged[passed[0]] if len(passed) else None
        values = (
            (None, None, None, None)
            if place is None
            else (
                records[place].sim_time,
                float(energy[place]),
                records[place].round,
                int(took_part[place]),
            )
        )
        for name, value in zip(answer, values, strict=True):
            answer[name].append(value)
    return answer | {
        "last": records[-1].sim_time,
        "rounds": records[-1].round,
        "stop": records[-1].stop,
        "best": float(np.nanmax(accuracy)),
        "over": int(sum(int(one.sum()) for one in over)),
        "most": float(
            max((r.cost.energy / sim.cell.max_energy[r.ue]).max() for r in records if len(r.ue))
        ),
        "cpu": time.process_time() - start,
    }


def alone(order):
    """Accuracy of UEs that train alone on their own samples, with the same time and energy each: by
    budget and step.

    A UE that has T seconds and E joules computes at the frequency that lets it do most,
    min(vartheta, (2 E / (varsigma T))^(1/3)). It begins with the same weights and takes plain
    gradient steps.
    """
    start = time.process_time()
    sim = built(order)
    cell, data, loss = sim.cell, sim.data, build_loss(sim.model)
    accuracy = [[0.0] * len(order["steps"]) for _ in order["budgets"]]
    for place, step in enumerate(order["steps"]):
        algorithm = fedavg(step)
        for ue in range(cell.num_ue):
            params, done = sim.params, 0
            rng = np.random.default_rng([order["seed"], ue])
            own, test = data.partition.train_of(ue), data.partition.test_of(ue)
            order_of = np.concatenate([rng.permutation(own) for _ in range(1 + 40_000 // len(own))])
            x, y = data.gather(test)
            for budget, (seconds, joules) in enumerate(order["budgets"]):
                num = min(samples_within(cell, ue, seconds, joules), len(order_of))
                while done + BATCH <= num:
                    params = algorithm.client_update(
                        loss, params, batch_of(data, order_of[done : done + BATCH])
                    )
                    done += BATCH
                outputs = torch.func.functional_call(sim.model, params, (x,))
                accuracy[budget][place] += (
                    float((outputs.argmax(-1) == y).double().mean()) / cell.num_ue
                )
    return {"accuracy": accuracy, "cpu": time.process_time() - start}


def samples_within(cell, ue, seconds, joules):
    """The most samples that a UE can work through."""
    most, least = cell.cpu_frequency[ue], cell.min_cpu_frequency[ue]
    frequency = np.clip((2.0 * joules / (cell.capacitance * seconds)) ** (1.0 / 3.0), least, most)
    cycles = min(frequency * seconds, 2.0 * joules / (cell.capacitance * frequency**2))
    return int(cycles / cell.cycles_per_sample[ue])


def batch_of(data, index):
    x, y = data.gather(index)
    batch = Batch(x[None], y[None], torch.ones(1, len(index)))
    nobody = Batch(x[None, :0], y[None, :0], torch.ones(1, 0))
    return MetaBatch(batch, nobody, nobody)


def build_loss(model):
    from autofl.models import loss_of

    return loss_of(model)


def fedavg(step):
    from autofl.algorithms.fedavg import FedAvg

    return FedAvg(outer_lr=step)


def main():
    torch.set_num_threads(1)
    kinds = {"run": measured, "alone": alone}
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(kinds[order["kind"]](order)), flush=True)


if __name__ == "__main__":
    main()
