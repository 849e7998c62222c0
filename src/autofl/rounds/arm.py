"""An arm: what is compared, a way of learning and a way of deciding who does how much of it."""

from dataclasses import dataclass

from autofl.aggregators import Aggregator, Mean
from autofl.algorithms import Algorithm
from autofl.compressors import Compressor
from autofl.errors import AutoFLError
from autofl.planner import Planner, check_bits
from autofl.planner.downlink import Losing
from autofl.registry import check_part
from autofl.selection import Selection, Uniform


@dataclass(frozen=True)
class Arm:
    """An algorithm with everything that goes with it. AutoFL is Arm(PerFedAvg(...),
    PaperPlanner(...)).
    """

    algorithm: Algorithm
    planner: Planner
    selection: Selection = Uniform(5)  # noqa: RUF009 - frozen, so it may be shared
    compressor: Compressor | None = None
    aggregator: Aggregator = Mean()  # noqa: RUF009
    downlink: Compressor | None = None  # of what the base station sends; None: its model as it is
    decides_downlink: bool = (
        False  # how many bits per weight it sends; else those of the compressor
    )

    @property
    def decided_downlink(self) -> Compressor | None:
        """The compressor of the way down, if its bits are decided in each round."""
        return self.downlink if self.decides_downlink else None

    def __post_init__(self) -> None:
        for kind in ("algorithm", "planner", "selection", "aggregator"):
            check_part(kind, getattr(self, kind))
        for compressor in (self.compressor, self.downlink):
            if compressor is not None:
                check_part("compressor", compressor)
        if self.decides_downlink and not isinstance(self.downlink, Losing):
            what = type(self.downlink).__name__
            raise AutoFLError(
                f"downlink {what}: its bits cannot be decided; it does not say what they lose (losses)"
            )
        check_bits(self.planner, self.compressor is not None)
        if getattr(self.aggregator, "needs_everybody", False) and not getattr(
            self.selection, "reaches_everybody", True
        ):
            raise AutoFLError(
                f"aggregator {type(self.aggregator).__name__}: it needs the probability of each UE to be selected,"
                f" which selection {type(self.selection).__name__} does not give or makes 0; take the aggregator mean"
            )
