"""An arm: what is compared, a way of learning and a way of deciding who does how much of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autofl.compressors import Compressor
from autofl.errors import AutoFLError
from autofl.planner import Planner, check_bits
from autofl.planner.downlink import Losing
from autofl.registry import check_part
from autofl.selection import Selection, Uniform

if TYPE_CHECKING:
    from autofl.algorithms import Algorithm
    from autofl.robust.aggregators import Aggregator

FIVE = Uniform(5)


@dataclass(frozen=True)
class Arm:
    """An algorithm with everything that goes with it. AutoFL is Arm(PerFedAvg(...), PaperPlanner(...)).

    Fields:
        algorithm: None for an arm that is only planned: planning needs no PyTorch.
        compressor: of an update; None sends 32 bits a weight.
        aggregator: None for the weighted mean, Eq. (15).
        downlink: of what the base station sends down; None for its model as it is.
        decides_downlink: whether the bits of each message down are decided; else they are the compressor's.
    """

    algorithm: "Algorithm | None"
    planner: Planner
    selection: Selection = FIVE
    compressor: Compressor | None = None
    aggregator: "Aggregator | None" = None
    downlink: Compressor | None = None
    decides_downlink: bool = False

    def __post_init__(self) -> None:
        kinds = {
            "algorithm": self.algorithm,
            "planner": self.planner,
            "selection": self.selection,
            "compressor": self.compressor,
            "aggregator": self.aggregator,
        }
        for kind, part in kinds.items():
            if part is not None:
                check_part(kind, part)
        if self.downlink is not None:
            check_part("compressor", self.downlink)
        if self.decides_downlink and not isinstance(self.downlink, Losing):
            raise AutoFLError(
                f"downlink {type(self.downlink).__name__}: its bits cannot be decided; it does not"
                " say what they lose (losses)"
            )
        check_bits(self.planner, self.compressor is not None)
        needs_everybody = getattr(self.aggregator, "needs_everybody", False)
        if needs_everybody and not getattr(self.selection, "reaches_everybody", True):
            raise AutoFLError(
                f"aggregator {type(self.aggregator).__name__}: it needs the probability of each UE to be"
                f" selected, which selection {type(self.selection).__name__} does not give or makes 0;"
                " take the aggregator mean"
            )
