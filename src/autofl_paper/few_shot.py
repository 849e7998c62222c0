"""Fast adaptation: how good the last model of a run is after one step on few samples of a UE.

At the UEs that trained it, and at as many newcomers: UEs whose samples, labels and sizes are drawn
anew by the same law from the test parts, on which nobody trained. A newcomer adapts on some of its
samples and is judged on others.

As rows, the study is STUDY.own or STUDY.new, and the place on the axis is the number of samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autofl.config import Settings
from autofl.data.partition import Partition, split
from autofl.jobs.job import Job
from autofl.records import read_weights
from autofl.report.table import Table
from autofl.rng import stream
from autofl_paper.recipes import ADAPTED
from autofl_paper.results import Row, read_rows
from autofl_paper.study import Arm, Runs

if TYPE_CHECKING:
    from torch import nn

    from autofl.data.federated import FederatedData

SAMPLES = (1, 5, 35, 50)
"""On how many samples a UE adapts; 35 is AutoFL's mean d."""
TEST_SAMPLES = 200
WORDS = {"mnist-iid": "i.i.d. MNIST", "mnist": "MNIST, l = 5", "cifar10": "CIFAR-10, l = 5"}


def newcomers(settings: Settings, data: "FederatedData") -> Partition:
    """As many new UEs by the same law, who own nothing but test samples of the others."""
    from autofl.experiments.data import build_law

    unseen = np.sort(data.partition.test)
    label = data.y.cpu().numpy()[unseen]
    owned = build_law(settings)(
        label, data.num_classes, data.partition.num_ue, stream(settings.seed, "newcomers")
    )
    return split([unseen[index] for index in owned], stream(settings.seed, "newcomers-split"))


def collect_adaptation(runs: Runs, device: str) -> list[Row]:
    """The adaptation of each run's last model, from its weights."""
    from autofl.experiments.build import build_model, pick_device
    from autofl.experiments.data import build_data, load_data

    rows: list[Row] = []
    where = pick_device(device)
    loaded = None
    for seed in dict.fromkeys(seed for _, seed in runs):
        members = [(arm, job) for (arm, of_seed), job in runs.items() if of_seed == seed]

        # The UEs and newcomers of a seed are the same for all arms.
        settings = members[0][1].settings.resolved()
        loaded = loaded or load_data(settings)
        data = build_data(settings, *loaded).to(where)
        new = replace(data, partition=newcomers(settings, data))
        model = build_model(settings, data.sample_shape, data.num_classes).to(where)
        for who, at in (("own", data), ("new", new)):
            rows += _adapted(who, settings, at, model, members)
    return rows


def _adapted(
    who: str,
    settings: Settings,
    data: "FederatedData",
    model: "nn.Module",
    members: Sequence[tuple[Arm, Job]],
) -> list[Row]:
    """The final models of one seed, adapted at these UEs."""
    import torch

    from autofl.evaluation import Evaluator

    alpha = settings.learning.inner_lr
    assert isinstance(alpha, float)  # the paper's
    rows = []
    for samples in SAMPLES:
        judge = Evaluator(alpha, samples, train_samples=1, test_samples=TEST_SAMPLES)
        judged = judge.prepare(model, data, settings.seed)
        for arm, job in members:
            params = {}
            for name, weights in read_weights(job.folder).items():
                params[name] = torch.from_numpy(weights).to(data.x.device)
            quality = judged(params)
            values = {
                "best_global": round(quality.global_accuracy, 4),
                "best_adapted": round(quality.adapted_accuracy, 4),
            }
            study = f"{arm.study}.{who}"
            rows.append(Row("", study, arm.name, samples, settings.seed, values))
    return rows


def read_adaptation(folder: Path) -> list[Row]:
    """The rows that are there, study by study."""
    rows: list[Row] = []
    for study in ADAPTED:
        path = folder / f"{study}.adapted.csv"
        if path.is_file():
            rows += read_rows(path)
    return rows


def adaptation_table(rows: Sequence[Row]) -> Table:
    """Median accuracy over seeds [%]: as it is, then after one step on each number of samples; own
    / new UEs.
    """
    cells: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.study, row.arm, row.x), []).append(row)

    def both(study: str, arm: str, num: int, name: str) -> str:
        at_own = _median(cells[f"{study}.own", arm, num], name)
        at_new = _median(cells[f"{study}.new", arm, num], name)
        return f"{at_own:.1f} / {at_new:.1f}"

    samples = sorted({row.x for row in rows})
    body = []
    for study, arm in dict.fromkeys((row.study.partition(".")[0], row.arm) for row in rows):
        before = both(study, arm, samples[0], "best_global")
        after = [both(study, arm, num, "best_adapted") for num in samples]
        body.append([WORDS[study], arm, before, *after])
    return Table(["data", "algorithm", "as it is", *(f"after {num}" for num in samples)], body)


def _median(rows: Iterable[Row], name: str) -> float:
    return float(100.0 * np.median([row.values[name] for row in rows]))
