"""Fast adaptation: how good the last model of a run is after one step on few samples of a UE.

At the UEs that trained it, and at as many newcomers: UEs whose samples, labels and sizes are drawn
anew by the same law from the test parts, on which nobody trained. A newcomer adapts on some of its
samples and is judged on others.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autofl.config import Settings, parse_settings
from autofl.data.partition import Partition, split
from autofl.files import opening, read_toml, write_whole
from autofl.records import read_weights
from autofl.records.run import CONFIG
from autofl.rng import stream
from autofl_paper.recipes import ADAPTED, Arm

if TYPE_CHECKING:
    from torch import nn

    from autofl.data.federated import FederatedData

SAMPLES = (1, 5, 35, 50)
"""On how many samples a UE adapts; 35 is AutoFL's mean d."""
TEST_SAMPLES = 200
COLUMNS = ("study", "arm", "seed", "who", "samples", "global_accuracy", "adapted_accuracy")


@dataclass(frozen=True)
class Adapted:
    """Accuracy of one run's last model at its own or at new UEs, as it is and after a step on a few
    samples.
    """

    study: str
    arm: str
    seed: int
    who: str
    samples: int
    global_accuracy: float
    adapted_accuracy: float


def newcomers(settings: Settings, data: "FederatedData") -> Partition:
    """As many new UEs by the same law, who own nothing but test samples of the others."""
    from autofl.experiments.data import build_law

    unseen = np.sort(data.partition.test)
    label = data.y.cpu().numpy()[unseen]
    owned = build_law(settings)(
        label, data.num_classes, data.partition.num_ue, stream(settings.seed, "newcomers")
    )
    return split([unseen[index] for index in owned], stream(settings.seed, "newcomers-split"))


def collect_adaptation(
    study: str, members: Sequence[tuple[Arm, int, Path]], device: str
) -> list[Adapted]:
    """The adaptation of each run's last model, from its weights."""
    from autofl.experiments.build import build_model, pick_device
    from autofl.experiments.data import build_data, load_data

    rows: list[Adapted] = []
    where = pick_device(device)
    loaded = None
    for seed in dict.fromkeys(seed for _, seed, _ in members):
        runs = [(arm, folder) for arm, of_seed, folder in members if of_seed == seed]
        settings = parse_settings(read_toml(runs[0][1] / CONFIG)).resolved()
        loaded = loaded or load_data(settings)
        data = build_data(settings, *loaded).to(where)
        new = replace(data, partition=newcomers(settings, data))
        model = build_model(settings, data.sample_shape, data.num_classes).to(where)
        rows += _of_seed(study, settings, {"own": data, "new": new}, model, runs)
    return rows


def _of_seed(
    study: str,
    settings: Settings,
    at: "dict[str, FederatedData]",
    model: "nn.Module",
    runs: Sequence[tuple[Arm, Path]],
) -> list[Adapted]:
    """The runs of one seed, whose UEs and newcomers are the same."""
    import torch

    from autofl.evaluation import Evaluator

    alpha = settings.learning.inner_lr
    assert isinstance(alpha, float)  # the paper's
    rows: list[Adapted] = []
    for who, data in at.items():
        for samples in SAMPLES:
            judge = Evaluator(alpha, samples, train_samples=1, test_samples=TEST_SAMPLES)
            judged = judge.prepare(model, data, settings.seed)
            for arm, folder in runs:
                params = {
                    name: torch.from_numpy(p).to(data.x.device)
                    for name, p in read_weights(folder).items()
                }
                quality = judged(params)
                both = (
                    round(value, 4) for value in (quality.global_accuracy, quality.adapted_accuracy)
                )
                rows.append(Adapted(study, arm.name, settings.seed, who, samples, *both))
    return rows


def write_adaptation(rows: Sequence[Adapted], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([getattr(row, name) for name in COLUMNS] for row in rows)
    write_whole(folder / f"{rows[0].study}.adapted.csv", text.getvalue())


def read_adaptation(folder: Path) -> list[Adapted]:
    """The rows that are there, study by study."""
    rows: list[Adapted] = []
    for study in ADAPTED:
        path = folder / f"{study}.adapted.csv"
        if not path.is_file():
            continue
        with opening(path, "readable results"), path.open(newline="", encoding="utf-8") as file:
            rows += [
                Adapted(
                    line["study"],
                    line["arm"],
                    int(line["seed"]),
                    line["who"],
                    int(line["samples"]),
                    float(line["global_accuracy"]),
                    float(line["adapted_accuracy"]),
                )
                for line in csv.DictReader(file)
            ]
    return rows
