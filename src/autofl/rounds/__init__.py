"""Algorithm 2 as one loop, wherever it takes place: in one process, or on devices."""

from autofl.rounds.loop import Job, Orders, Standing, World, cost_of, record_of, run_rounds
from autofl.rounds.stop import Stop

__all__ = ["Job", "Orders", "Standing", "Stop", "World", "cost_of", "record_of", "run_rounds"]
