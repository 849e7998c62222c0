"""One round of the network, written once: select, gain, plan, who is heard, cost. No learning here.

The loop of a run, a batch of runs, a plan and the forecast all come through `decide`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.compressors import Compressor
from autofl.core.arm import Arm
from autofl.core.checkpoint import Checkpoint
from autofl.core.round import Air, Round
from autofl.errors import AutoFLError
from autofl.network import (
    Cell,
    Outage,
    Plan,
    RoundCost,
    arrives,
    decoded,
    listening_energy,
    round_cost,
    snr,
    stacked,
)
from autofl.planner import Memory, Planner
from autofl.planner.downlink import DELAYED, best_message, offer_of
from autofl.rng import stream
from autofl.selection import Candidates
from autofl.units import Array, BoolArray


@dataclass(frozen=True, kw_only=True)
class Network:
    """What decides a round before anybody trains: an arm in a cell."""

    arm: Arm
    air: Air
    seed: int
    outage: Outage = "skip"

    @property
    def decided_downlink(self) -> Compressor | None:
        """The compressor of the way down, if its bits are decided in each round."""
        return self.arm.downlink if self.arm.decides_downlink else None


def before_training(network: Network) -> Checkpoint:
    """Where a network stands before its first round, nobody having learned anything."""
    message = 0.0 if network.arm.decides_downlink else None
    return Checkpoint(network.arm.planner.init(network.air.cell), message=message)


def without_learning(network: Network, before: Checkpoint) -> tuple[Round, Checkpoint]:
    """The next round of a network in which nobody learns anything, and where it stands after it.

    Where the downlink's bits are decided, the next message has those for this round and for what is
    typically lost: a simulation sees what is lost.
    """
    [(this, memory)] = decide([network], [before])
    message = before.message
    downlink = network.decided_downlink
    if downlink is not None and this.sends.any():
        message = _typical_bits(downlink, this)
    sim_time = before.sim_time + float(this.cost.time)
    return this, Checkpoint(memory, this.k, sim_time, message)


def decide(networks: Sequence[Network], past: Sequence[Checkpoint]) -> list[tuple[Round, Memory]]:
    """The next round of several networks, and their planners' memories after it: lines 3 to 8.

    Those whose planners are equal and allow it are planned in one call.
    """
    drawn = [_drawn(network, before) for network, before in zip(networks, past, strict=True)]
    decided: dict[int, tuple[Round, Memory]] = {}
    for group in _planned_alike(networks, drawn):
        network = networks[group[0]]
        if len(group) == 1:
            [r] = group
            decided[r] = _planned(network, drawn[r], past[r].memory)
            continue
        members = [drawn[r] for r in group]
        memories = [past[r].memory for r in group]
        planned, after = _planned(network, _stacked(members), _stacked_memory(memories))
        for row, r in enumerate(group):
            memory = {name: values[row] for name, values in after.items()}
            decided[r] = _part(planned, row, drawn[r]), memory
    return [decided[r] for r in range(len(networks))]


def with_bits(this: Round, arrived: BoolArray, bits: Array, outage: Outage) -> Round:
    """The round with the cost of the updates that were really sent; the plan stays what it was.

    Of an update that did not arrive only the planned size is known, and booked.
    """
    num_weights = this.cell.num_weights
    planned = np.isclose(bits, this.plan.bits_per_weight * num_weights, rtol=1e-12, atol=0.0)
    as_planned = planned | ~arrived
    if as_planned.all():
        return this
    really = np.where(as_planned, this.plan.bits_per_weight, bits / num_weights)
    sent = replace(this.plan.only(this.sends), bits_per_weight=really)
    return replace(this, cost=round_cost(this.cell, this.gain, sent, outage, this.guess))


def typical_pace(network: Network, this: Round) -> float:
    """Share of a round's progress that is left with its message down, by what it typically loses."""
    if network.decided_downlink is None:
        return 1.0
    offer = offer_of(network.decided_downlink, int(this.cell.num_weights))
    return 1.0 - DELAYED * float(np.interp(this.cell.downlink_bits, offer.size, offer.lost))


def _drawn(network: Network, before: Checkpoint) -> Round:
    """What chance decides: who is selected, and their channels."""
    air = network.air
    seed = network.seed
    k = before.round + 1
    everybody = np.arange(air.cell.num_ue)
    candidates = Candidates(air.cell, k, lambda: air.gains(seed, k, everybody, before.sim_time)[1])
    selection = network.arm.selection
    ue, probability = selection.draw(candidates, stream(seed, "selection", k))
    rises = ue.shape == probability.shape and (np.diff(ue) > 0).all()
    if not rises or not np.isin(ue, everybody).all():
        raise AutoFLError(
            f"selection {type(selection).__name__}: A_k must be UEs in rising order, each once"
        )
    gain, known = air.gains(seed, k, ue, before.sim_time)
    this = Round(k, ue, probability, air.cell.take(ue), gain, known)
    if before.message:
        return _told(this, before.message)
    if before.message is None or network.decided_downlink is None:
        return this

    # The bits of a first message are decided: there is no difference yet that could be measured. The
    # round is planned with the compressor's own bits to see how long it takes apart from the downlink.
    seen, _ = _planned(network, this, before.memory)
    return _told(this, _typical_bits(network.decided_downlink, seen))


def _told(this: Round, downlink_bits: float) -> Round:
    """The same with a message down of this size."""
    return replace(this, cell=this.cell.having(downlink_bits=downlink_bits))


def _typical_bits(downlink: Compressor, this: Round) -> float:
    """Z_down [bit] that is worth its time in such a round, by what is typically lost."""
    offer = offer_of(downlink, int(this.cell.num_weights))
    return float(offer.size[best_message(offer, this.cost, this.cell.downlink_bits)])


def _planned(network: Network, drawn: Round, memory: Memory) -> tuple[Round, Memory]:
    """Plan, who is heard, cost: lines 6 to 8 of Algorithm 2. Arrays may have a leading axis.

    The planner sees what is known of the gains and chooses rates from it; the true gains decide
    what is decoded.
    """
    planner = network.arm.planner
    plan, memory = _within_energy(planner, drawn.cell, drawn.known, memory)
    if (problem := plan.problem(drawn.cell)) is not None:
        raise AutoFLError(f"planner {type(planner).__name__}: {problem}")

    applied = plan.applied(drawn.cell)
    sends = plan.feasible & decoded(applied, drawn.known, plan.tx_power)
    heard = sends
    if drawn.guess is not None:
        heard = sends & arrives(applied, drawn.gain, drawn.guess, plan.tx_power)
    cost = round_cost(drawn.cell, drawn.gain, plan.only(sends), network.outage, drawn.guess)
    strength = snr(applied, drawn.gain, plan.tx_power)
    return replace(drawn, plan=plan, sends=sends, decoded=heard, snr=strength, cost=cost), memory


def _within_energy(
    planner: Planner, ues: Cell, known: Array, memory: Memory
) -> tuple[Plan, Memory]:
    """The plan, made with what is left of E_max once the model has been received.

    How long that takes depends on who takes part: at first all that are decodable in their own
    bands, then whoever a plan adds to them. So nobody spends more than E_max, and some a little
    less than they might.
    """
    listens = ues.receive_power > 0.0 and ues.downlink_power is not None
    listeners = decoded(ues, known, ues.max_power) if listens else None
    while True:
        cell = ues
        if listeners is not None:
            left = ues.max_energy - listening_energy(ues, known, listeners)
            cell = ues.having(max_energy=np.maximum(left, 0.0))
        answer = planner(cell, known, memory)
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], Plan):
            raise AutoFLError(
                f"planner {type(planner).__name__}: it must give a Plan and its memory"
            )
        takes_part = answer[0].feasible
        if listeners is None or (listeners | ~takes_part).all():
            return answer
        listeners = listeners | takes_part


def _planned_alike(networks: Sequence[Network], drawn: Sequence[Round]) -> list[list[int]]:
    """Which networks are planned in one call: equal planners that take leading axes, equal sizes."""
    groups: list[list[int]] = []
    for r, network in enumerate(networks):
        for group in groups:
            first = group[0]
            if _are_alike(network, networks[first], drawn[r], drawn[first]):
                group.append(r)
                break
        else:
            groups.append([r])
    return groups


def _are_alike(one: Network, other: Network, drawn: Round, its: Round) -> bool:
    return (
        getattr(one.arm.planner, "batched", False)
        and are_equal(one.arm.planner, other.arm.planner)
        and one.outage == other.outage
        and drawn.ue.shape == its.ue.shape
        and one.air.cell.num_ue == other.air.cell.num_ue
        and all(getattr(drawn.cell, name) == getattr(its.cell, name) for name in WHOLE_CELL)
    )


def are_equal(one: object, other: object) -> bool:
    """Whether two parts are the same in kind and settings or, where these are arrays, the same object."""
    try:
        return type(one) is type(other) and bool(one == other)
    except ValueError:
        return one is other


WHOLE_CELL = [field.name for field in fields(Cell) if field.name not in (*Cell.PER_UE, "ue")]
"""Fields of a cell that are one number for all its UEs."""


def _stacked(drawn: Sequence[Round]) -> Round:
    """Rounds of equally many UEs as one, with a leading axis."""
    gain = np.stack([one.gain for one in drawn])
    known = gain
    if any(one.guess is not None for one in drawn):
        known = np.stack([one.known for one in drawn])
    cell = stacked([one.cell for one in drawn])
    return replace(drawn[0], cell=cell, gain=gain, known=known)


def _stacked_memory(memories: Sequence[Memory]) -> dict[str, NDArray[Any]]:
    return {name: np.stack([memory[name] for memory in memories]) for name in memories[0]}


def _part(planned: Round, row: int, drawn: Round) -> Round:
    """The round that was drawn, with its row of what was planned for several."""
    cost = {one.name: getattr(planned.cost, one.name)[row] for one in fields(RoundCost)}
    return replace(
        drawn,
        plan=planned.plan.part(row),
        sends=planned.sends[row],
        decoded=planned.decoded[row],
        snr=planned.snr[row],
        cost=RoundCost(**cost),
    )
