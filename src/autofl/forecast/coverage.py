"""Which labels a model can learn: those that some UE that is heard owns. NumPy only."""

from typing import NamedTuple

import numpy as np

from autofl.config import Settings
from autofl.core.horizon import Horizon
from autofl.errors import AutoFLError
from autofl.experiments.data import labels_of
from autofl.units import Array

CLASSES = 10
"""Labels of the data sets that come along, where the samples are not at hand to count them."""


class Coverage(NamedTuple):
    """How much of each label a model hears, 1 being its share among all UEs."""

    missing: int  # labels that are never heard
    highest: float  # accuracy that this leaves, mean over UEs
    rarest: float  # exposure of the label that is heard least


def label_shares(settings: Settings) -> Array | None:
    """Share of each label among a UE's samples, shape (num_ue, num_classes); None where only the
    samples would tell.
    """
    data = settings.data
    num_ue = settings.cell.count
    if data.partition == "iid":
        return np.full((num_ue, CLASSES), 1.0 / CLASSES)
    try:
        counts = labels_of(settings)
    except AutoFLError:  # not at hand; the law of labels is known all the same
        if data.partition != "labels":
            return None
        ue = np.arange(num_ue)[:, None]
        label = np.arange(CLASSES)
        counts = ((label - ue) % CLASSES < data.labels).astype(np.float64)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def coverage(shares: Array, horizon: Horizon, even: bool = False) -> Coverage:
    """What becomes of the labels in these rounds.

    A label c is in the mean gradient with weight e_c = sum_i U_i p_i(c), where it should be (1/n)
    sum_i p_i(c). Its
    exposure is the ratio r_c of the two: K rounds teach of it what r_c K rounds do with everybody
    heard. With r_c = 0 it is not learned, so that the share of a UE's test samples that has it is
    lost.

    Args:
        shares: p_i(c), shape (num_ue, num_classes).
        even: rounds are few and everybody is selected alike; then those who were selected stand for
            all.
    """
    there = horizon.decoded.any(axis=1)
    selected = horizon.selected[there] / horizon.selected[there].sum(axis=1, keepdims=True)
    due = selected.mean(axis=0) @ shares if even else shares.mean(axis=0)
    ratio = exposure(shares, horizon.weight[there].mean(axis=0), due)
    known = ratio > 0.0
    return Coverage(int((~known).sum()), float((shares @ known).mean()), float(ratio.min()))


def exposure(shares: Array, weight: Array, due: Array) -> Array:
    """r_c of each label under these mean weights U_i of the UEs; 1 of a label that is not due."""
    heard = weight @ shares
    return np.divide(heard, due, out=np.ones_like(heard), where=due > 0.0)
