"""How fast models adapt: accuracy after one step on few samples, at own and at new UEs, as a table."""

from collections.abc import Sequence

import numpy as np

from autofl.report.table import Table
from autofl_paper.few_shot import Adapted
from autofl_paper.results import Row

WORDS = {"mnist-iid": "i.i.d. MNIST", "mnist": "MNIST, l = 5", "cifar10": "CIFAR-10, l = 5"}


def rows_of(adapted: Sequence[Adapted]) -> list[Row]:
    """As rows that claims can look up: the study is STUDY.own or STUDY.new, the place on the axis
    the samples.
    """
    return [
        Row(
            "",
            f"{one.study}.{one.who}",
            one.arm,
            one.samples,
            one.seed,
            {"best_adapted": one.adapted_accuracy, "best_global": one.global_accuracy},
        )
        for one in adapted
    ]


def adaptation_table(adapted: Sequence[Adapted]) -> Table:
    """Median accuracy over seeds [%]: as it is, then after one step on each number of samples; own
    / new UEs.
    """
    samples = sorted({one.samples for one in adapted})
    body = []
    for study, arm in dict.fromkeys((one.study, one.arm) for one in adapted):
        mine = [one for one in adapted if (one.study, one.arm) == (study, arm)]

        def both(num: int, column: str, of: Sequence[Adapted] = mine) -> str:
            values = (
                100.0
                * np.median(
                    [getattr(one, column) for one in of if (one.who, one.samples) == (who, num)]
                )
                for who in ("own", "new")
            )
            return " / ".join(f"{value:.1f}" for value in values)

        steps = [both(num, "adapted_accuracy") for num in samples]
        body.append([WORDS[study], arm, both(samples[0], "global_accuracy"), *steps])
    return Table(["data", "algorithm", "as it is", *(f"after {num}" for num in samples)], body)
