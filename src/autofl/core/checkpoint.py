"""Where a run stands between two rounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autofl.planner import Memory
from autofl.quality import Evaluation

History = tuple[tuple[int, Evaluation], ...]
"""Evaluated rounds, the last ones."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run carries from one round to the next: all that is needed to go on from here.

    Fields:
        memory: of the planner.
        message: Z_down [bit] of the message that brings the next model; None for the cell's, 0 where
            it is still to be decided.
        state: of the server; None where nothing is learned.
        held: what the UEs have where the downlink is compressed, in the form of `State.sent`; None
            where they have the model itself.
        history: the evaluated rounds that a stop rule still looks at.
        world: what the world remembers, arrays or tensors by name.
        stop, suspects: of the last round, as in `Round`.
    """

    memory: Memory
    round: int = 0
    sim_time: float = 0.0
    message: float | None = None
    state: Any = None
    held: Any = None
    history: History = ()
    world: Mapping[str, Any] = field(default_factory=dict)
    stop: str | None = None
    suspects: tuple[tuple[int, float], ...] = ()

    @property
    def sent(self) -> Any:
        """What the UEs train from, in the form of `State.sent`."""
        return self.state.sent if self.held is None else self.held

    @property
    def judged(self) -> Any:
        """The model that is evaluated: the one the UEs have."""
        if self.held is None:
            return self.state.params
        return {name: self.held[name] for name in self.state.params}


def group(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The values whose names begin with this prefix and a dot, by the rest of their names."""
    begin = f"{prefix}."
    return {name[len(begin) :]: value for name, value in values.items() if name.startswith(begin)}
