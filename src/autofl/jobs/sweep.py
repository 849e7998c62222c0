"""Sweeps: one plan, or one run for each seed, at every combination of some settings' values.

Nothing here loads PyTorch.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from autofl.config import Settings, name_of, parse_value
from autofl.errors import AutoFLError
from autofl.experiments.cell import plan
from autofl.jobs.job import Job

MOST_VALUES = 1_000
"""Most values of one setting."""
MOST_RUNS = 10_000
"""Most plans or runs of one sweep."""
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"\s*({NUMBER})\s*:\s*({NUMBER})\s*:\s*(\d+)\s*(?::\s*(log|linear)\s*)?")
HOW = "write KEY=LOW:HIGH:COUNT, KEY=LOW:HIGH:COUNT:log or KEY=VALUE,VALUE,..."


@dataclass(frozen=True)
class Axis:
    """A setting, and its values as one would write them after --set."""

    key: str
    texts: tuple[str, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        """The values as a settings file holds them."""
        return tuple(parse_value(text) for text in self.texts)


def parse_axis(text: str) -> Axis:
    """`cell.max_energy=1e-3:1e-2:10`, the same with `:log`, or a list such as `data.labels=1,2,5`."""
    key, sign, given = text.partition("=")
    key = key.strip()
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    if not sign or not key or not given.strip():
        raise AutoFLError(f"--over {shown}: {HOW}")
    if key == "seed":
        raise AutoFLError(
            "--over seed: say how many seeds with --seeds, and the first with --set seed=N"
        )
    match = RANGE.fullmatch(given)
    if match is None and re.fullmatch(rf"\s*{NUMBER}(?:\s*:\s*[\w.+-]*)+\s*", given):
        raise AutoFLError(f"--over {shown}: not a range; {HOW}")
    texts = _range(match, shown) if match is not None else _list(given)
    if len(texts) > MOST_VALUES:
        raise AutoFLError(f"--over {shown}: more than {MOST_VALUES:,} values")
    if not all(texts) or len({str(parse_value(entry)) for entry in texts}) < len(texts):
        raise AutoFLError(f"--over {shown}: a value is empty or given twice")
    return Axis(key, tuple(texts))


def _range(match: re.Match[str], shown: str) -> list[str]:
    low = float(match[1])
    high = float(match[2])
    count = int(match[3])
    spacing = match[4] or "linear"
    if not 2 <= count <= MOST_VALUES or low == high or not np.isfinite([low, high]).all():
        raise AutoFLError(
            f"--over {shown}: a range needs two different ends and 2 to {MOST_VALUES:,} values"
        )
    if spacing == "log" and not min(low, high) > 0.0:
        raise AutoFLError(f"--over {shown}: a logarithmic range needs ends > 0")
    values = np.geomspace(low, high, count) if spacing == "log" else np.linspace(low, high, count)
    whole = all(re.fullmatch(r"[-+]?\d+", match[end]) for end in (1, 2))
    texts = [f"{value:.12g}" for value in values.tolist()]  # 0.3, not 0.30000000000000004
    return [text if whole and re.fullmatch(r"-?\d+", text) else repr(float(text)) for text in texts]


def _list(text: str) -> list[str]:
    """Split at the commas outside brackets and quotes: a law such as {uniform = [1, 2]} has its
    own.
    """
    parts = [""]
    depth = 0
    quote = ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += 0 if quote else (character in "[{") - (character in "]}")
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def short(key: str) -> str:
    """A setting without its section; the section of a part's name."""
    section, _, name = key.rpartition(".")
    return section if name == "name" and section else name


def value_text(value: Any) -> str:
    """A value as people read it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def jobs_of(
    axes: Sequence[Axis],
    load: Callable[[Sequence[str]], Settings],
    num_seeds: int,
    store: Path,
) -> list[Job]:
    """A run for every combination of the axes' values, the last axis fastest, with each of the seeds
    seed, seed + 1, ...; finished runs of the store are kept, stopped ones go on.

    Args:
        load: settings with these overrides ("cell.max_energy=0.001") on top; bad ones raise an
            error of one line.
    """
    keys = [axis.key for axis in axes]
    if not axes or len(set(keys)) < len(keys):
        raise AutoFLError(f"--over: name each setting once, at least one; {HOW}")
    if num_seeds < 1:
        raise AutoFLError(f"--seeds {num_seeds}: at least 1 is needed")
    count = num_seeds * math.prod(len(axis.texts) for axis in axes)
    if count > MOST_RUNS:
        raise AutoFLError(
            f"--over: {count:,} combinations with their seeds; at most {MOST_RUNS:,} are made"
        )

    jobs = []
    for texts in product(*(axis.texts for axis in axes)):
        settings = load([f"{key}={text}" for key, text in zip(keys, texts, strict=True)])
        values = dict(zip(keys, map(parse_value, texts), strict=True))
        words = ", ".join(f"{short(key)} {value_text(value)}" for key, value in values.items())
        for seed in range(settings.seed, settings.seed + num_seeds):
            seeded = settings.model_copy(update={"seed": seed})
            label = f"{words}, seed {seed}"
            folder = store / name_of(seeded)
            jobs.append(Job(seeded, folder, label, values, resume=True, wait=True))
    return jobs


def planned(settings: Settings) -> dict[str, float]:
    """What a planned round of the whole cell amounts to, as `autofl plan` has it; SI units.

    `straggler` is the UE that ends the round, `compute_time` and `upload_time` are its own; these
    and `round_time` are NaN where nobody takes part. `num_samples` and `energy` are sums over UEs.
    """
    this_round = plan(settings).round
    cost = this_round.cost
    decided = this_round.plan
    busy = np.where(decided.feasible, cost.compute_time + cost.upload_time, -np.inf)
    last = int(np.argmax(busy))
    alone = np.nan if not decided.feasible.any() else 1.0
    return {
        "round_time": float(cost.time) * alone,
        "num_ue": this_round.cell.num_ue,
        "num_feasible": int(decided.feasible.sum()),
        "num_samples": int(decided.num_samples.sum()),
        "energy": float(cost.energy.sum()),
        "straggler": last * alone,
        "compute_time": float(cost.compute_time[last]) * alone,
        "upload_time": float(cost.upload_time[last]) * alone,
    }
