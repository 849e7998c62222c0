"""The client updates every engine is put through, on UEs with unequal batches."""

from dataclasses import dataclass

import numpy as np
import torch

from autofl.algorithms import FedAvg, PerFedAvg
from autofl.data.batch import Batch
from autofl.engines import ReceivedUpdates, flat
from autofl.units import IntArray

ALGORITHMS = {
    "fedavg": FedAvg(0.07),
    "exact": PerFedAvg(0.3, 0.07),
    "first-order": PerFedAvg(0.3, 0.07, "first-order"),
    # A step long enough that engines agree: over a shorter one a kink that one of them crosses by
    # rounding is all.
    "finite-difference": PerFedAvg(0.3, 0.07, "finite-difference", difference=1e-2),
    "guarded": PerFedAvg(0.3, 0.07, guard=0.5, grad_clip=2.0),
}
UE = np.array([0, 2, 3, 5, 7])
NUM_SAMPLES = np.array([24, 3, 17, 8, 11])  # three unequal batches each, of 1 to 8 samples


@dataclass(frozen=True)
class InMemory:
    """Batches that are there already."""

    batch: Batch  # leading axes (3, num_ue, tau)

    def __len__(self) -> int:
        return self.batch.y.shape[1]

    @property
    def local_steps(self) -> IntArray:
        """tau of each row."""
        return np.full(len(self), self.batch.y.shape[2])

    @property
    def width(self) -> int:
        return self.batch.y.shape[-1]

    def take(self, rows: IntArray) -> Batch:
        where = torch.from_numpy(rows)
        return Batch(self.batch.x[:, where], self.batch.y[:, where], self.batch.mask[:, where])

    def narrowed(self) -> tuple["InMemory", None]:
        return self, None


def received(ue, stack, sent):
    """Updates of one local step, whose client parameters are stacked along a leading axis."""
    changes = [
        flat({name: p[row] - sent[name] for name, p in stack.items()}) for row in range(len(ue))
    ]
    nothing = np.zeros(len(ue), dtype=np.int64)
    return ReceivedUpdates(np.asarray(ue), changes, sent, nothing + 1, nothing)
