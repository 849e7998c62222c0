"""Networks and single rounds of them, for tests of what is decided."""

from autofl.core.arm import Arm
from autofl.core.checkpoint import Checkpoint
from autofl.core.decide import Network, decide
from autofl.core.round import ChannelAir


def network_of(cell, channel, planner, selection, seed=1):
    """A network whose arm has nothing but a planner and a selection."""
    return Network(arm=Arm(None, planner, selection), air=ChannelAir(cell, channel), seed=seed)


def decided(network, k=1, memory=None):
    """Round k of a network and the planner's memory after it, with this memory before it."""
    if memory is None:
        memory = network.arm.planner.init(network.air.cell)
    message = 0.0 if network.arm.decides_downlink else None
    [answer] = decide([network], [Checkpoint(memory, k - 1, message=message)])
    return answer
