"""The rival AdaQuantFL: bits that grow as the loss falls (Jhunjhunwala et al., ICASSP 2021)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from autofl.network import Cell, Plan
from autofl.planner.base import STEP_SAMPLES, Memory
from autofl.planner.fixed import FixedPlanner
from autofl.quality import Evaluation
from autofl.ranges import Checked, Range
from autofl.units import Array

MOST_BITS = 16
"""Most bits per weight: no quantiser here uses more."""


@dataclass(frozen=True)
class AdaQuantPlanner(Checked):
    """The number of quantisation levels follows the training loss, "Adaptive quantization of model
    updates for communication-efficient federated learning" (arXiv 2102.04487):

        s_k = sqrt(F(w_0) / F(w_k)) s_0,    bits of a weight = ceil(log2(s_k + 1)) + 1

    the added bit being the sign. Samples and power are those of `fixed`, the power being what the
    energy allows for the bits of the round. It needs a compressor that takes its bits from the
    plan, such as `quantise`.

    Note:
        F(w_k) is the loss at the last evaluation (`evaluation.every`), which costs no time or
        energy; theirs is known in every round. s_k is rounded up to a whole number. `quantise` has
        one scale per block where theirs has one norm, and uses all 2^(b-1) - 1 levels that b bits
        hold. The fractional part of Z / N is taken to be the scales; the weights fill whole bytes,
        since b bits would not fit otherwise where b N is not a multiple of 8. Rounds without
        learning, such as those from which `unbiased` learns how often a UE is heard, plan with s_0.
    """

    levels: Annotated[
        int, Range(ge=1, le=2 ** (MOST_BITS - 1) - 1), "s_0, levels in the first rounds"
    ] = 2
    num_samples: Annotated[int, STEP_SAMPLES, "d"] = 40
    power: Annotated[Literal["max", "computed"], "send at P_max, or as PowerComputation says"] = (
        "computed"
    )
    loss: Annotated[
        Literal["train", "adapted"], "F: loss of the global model, or after its adaptation step"
    ] = "train"

    batched = True
    needs_compressor = True

    def init(self, cell: Cell) -> Memory:
        return {"first_loss": np.full(1, np.nan), "loss": np.full(1, np.nan)}

    def observe(self, memory: Memory, evaluation: Evaluation) -> Memory:
        """The memory after an evaluation: the first loss is F(w_0); a loss that is not positive is
        ignored.
        """
        loss = evaluation.train_loss if self.loss == "train" else evaluation.adapted_train_loss
        if not 0.0 < loss < np.inf:
            return memory
        first = memory["first_loss"]
        return {
            "first_loss": np.where(np.isnan(first), loss, first),
            "loss": np.full(first.shape, loss),
        }

    def __call__(self, cell: Cell, channel_gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        scales = 8.0 * np.floor(
            (cell.update_bits % cell.num_weights) / 8.0
        )  # a device sends whole bytes
        weights = 8.0 * np.ceil(self.whole_bits(memory) * cell.num_weights / 8.0)
        plan, _ = self._rest()(cell.having(update_bits=weights + scales), channel_gain, {})
        return plan, memory

    def whole_bits(self, memory: Memory) -> Array:
        """Bits of a weight in the next round, shape (..., 1)."""
        ratio = np.nan_to_num(memory["first_loss"] / memory["loss"], nan=1.0)
        levels = np.ceil(np.sqrt(ratio) * self.levels * (1.0 - 1e-12))
        return np.minimum(np.ceil(np.log2(levels + 1.0)) + 1.0, MOST_BITS)

    def _rest(self) -> FixedPlanner:
        return FixedPlanner(num_samples=self.num_samples, power=self.power)
