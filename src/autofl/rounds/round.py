"""One round of the network, written once: select, gain, plan, who is heard, cost. No learning here.

The loop of a run, a batch of runs and the forecast all come through `network_rounds`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Protocol

import numpy as np

from autofl.channels import Channel, channel_at
from autofl.compressors import Compressor
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
from autofl.selection import Candidates, Selection
from autofl.units import Array, BoolArray, IntArray

MOST_GAIN = 1e20
"""More must be an error of units; rates and times would leave the range of numbers."""


class Gains(NamedTuple):
    """Channel gains of some UEs: what decides decoding, and what the planner knows; equal by
    default.
    """

    true: Array
    known: Array


class Air(Protocol):
    """The cell as the base station currently knows it, and its channels."""

    @property
    def cell(self) -> Cell: ...

    def gains(self, k: int, ue: IntArray, start: float) -> Gains:
        """Gains of these UEs in round k, which begins at the simulated time `start` [s]."""
        ...


@dataclass(frozen=True)
class ChannelAir:
    """The air of a simulation: a cell and a channel model."""

    cell: Cell
    channel: Channel
    seed: int

    def gains(self, k: int, ue: IntArray, start: float) -> Gains:
        channel = channel_at(self.channel, start)
        true = channel.gain(self.cell, self.seed, k)
        if true.shape != (self.cell.num_ue,) or not ((true >= 0.0) & (true <= MOST_GAIN)).all():
            raise AutoFLError(
                f"channel {type(self.channel).__name__}: round {k}: it must give each UE a gain from 0 to {MOST_GAIN:g}"
            )
        known = channel.estimate(self.cell, self.seed, k, true)
        here = true[ue]
        return Gains(here, here if known is true else known[ue])


@dataclass(frozen=True)
class Network:
    """What decides a round before anybody trains."""

    air: Air
    planner: Planner
    selection: Selection
    seed: int
    outage: Outage = "skip"
    downlink_bits: float | None = (
        None  # Z_down of what is sent down in this round; by default the cell's
    )
    downlink: Compressor | None = (
        None  # whose bits are decided; those of a first message by what is typically lost
    )
    start: float = 0.0  # at which the round begins [s]


@dataclass(frozen=True)
class Round:
    """A round of the network, arrays of shape (num_selected,)."""

    k: int
    ue: IntArray  # A_k
    probability: Array  # with which each was selected
    cell: Cell  # of the selected UEs
    gain: Array  # g_k^i, the true one
    known: Array  # what the planner knows of it; the same array where it knows it
    plan: Plan
    sends: BoolArray  # takes part as far as the base station knows
    decoded: BoolArray  # sends, and is decoded
    snr: Array  # xi_k^i
    cost: RoundCost

    def placed(self, ue: IntArray, values: IntArray) -> IntArray:
        """These UEs' values in the order of A_k; 0 for the others. A_k is in the order of the UEs'
        numbers.
        """
        whole = np.zeros(len(self.ue), dtype=np.int64)
        whole[np.searchsorted(self.ue, ue)] = values
        return whole


def network_round(network: Network, k: int, memory: Memory) -> tuple[Round, Memory]:
    """Round k of one network, and the planner's memory after it."""
    return network_rounds([network], k, [memory])[0]


def network_rounds(
    networks: Sequence[Network], k: int, memories: Sequence[Memory]
) -> list[tuple[Round, Memory]]:
    """Round k of several networks. Those whose planners are equal and allow it are planned in one
    call.
    """
    drawn = [
        _opened(network, _draw(network, k), memory)
        for network, memory in zip(networks, memories, strict=True)
    ]
    rounds: list[tuple[Round, Memory] | None] = [None] * len(networks)
    for group in _planned_alike(networks, drawn):
        members = [drawn[place] for place in group]
        network = networks[group[0]]
        own = [memories[place] for place in group]
        if len(group) == 1:
            made, after = _decide(network, members[0].cell, members[0].gains, own[0])
            results = [(made, after)]
        else:
            true = np.stack([member.gains.true for member in members])
            sure = all(member.gains.known is member.gains.true for member in members)
            gains = Gains(
                true, true if sure else np.stack([member.gains.known for member in members])
            )
            memory = {
                name: np.stack([planner_memory[name] for planner_memory in own]) for name in own[0]
            }
            made, after = _decide(
                network, stacked([member.cell for member in members]), gains, memory
            )
            results = [
                (made.part(r), {name: values[r] for name, values in after.items()})
                for r in range(len(group))
            ]
        for place, member, (decision, kept) in zip(group, members, results, strict=True):
            rounds[place] = decision.round(k, member), kept
    return [pair for pair in rounds if pair is not None]


def with_bits(this_round: Round, arrived: BoolArray, bits: Array, outage: Outage) -> Round:
    """The round with the cost of the updates that were really sent; the plan stays what it was.

    Of an update that did not arrive only the planned size is known, and booked.
    """
    plan = this_round.plan
    num_weights = this_round.cell.num_weights
    planned = np.isclose(bits, plan.bits_per_weight * num_weights, rtol=1e-12, atol=0.0)
    if (planned | ~arrived).all():
        return this_round
    really = np.where(planned | ~arrived, plan.bits_per_weight, bits / num_weights)
    sent = replace(plan.only(this_round.sends), bits_per_weight=really)
    return replace(
        this_round,
        cost=round_cost(this_round.cell, this_round.gain, sent, outage, _unless_true(this_round)),
    )


def _unless_true(gains: "Gains | Round") -> Array | None:
    """What is known of the gains; None where they are known exactly."""
    true = gains.true if isinstance(gains, Gains) else gains.gain
    return None if gains.known is true else gains.known


class _Drawn(NamedTuple):
    """What chance decides: who is selected, and their channels."""

    ue: IntArray
    probability: Array
    cell: Cell
    gains: Gains


def _draw(network: Network, k: int) -> _Drawn:
    air = network.air
    everybody = np.arange(network.air.cell.num_ue)
    candidates = Candidates(air.cell, k, lambda: air.gains(k, everybody, network.start).known)
    ue, probability = network.selection.draw(candidates, stream(network.seed, "selection", k))
    if (
        ue.shape != probability.shape
        or (np.diff(ue) <= 0).any()
        or not np.isin(ue, everybody).all()
    ):
        raise AutoFLError(
            f"selection {type(network.selection).__name__}: A_k must be UEs in rising order, each once"
        )
    gains = air.gains(k, ue, network.start)
    cell = air.cell.take(ue)
    if network.downlink_bits is not None:
        cell = cell.having(downlink_bits=network.downlink_bits)
    return _Drawn(ue, probability, cell, gains)


def _opened(network: Network, drawn: _Drawn, memory: Memory) -> _Drawn:
    """The same with a first message whose bits are decided: there is no difference yet that could
    be measured.

    The round is planned with the compressor's own bits to see how long it takes apart from the
    downlink.
    """
    if network.downlink is None or network.downlink_bits is not None:
        return drawn
    made, _ = _decide(network, drawn.cell, drawn.gains, memory)
    return drawn._replace(
        cell=drawn.cell.having(downlink_bits=_typical_bits(network.downlink, drawn.cell, made))
    )


def _typical_bits(downlink: Compressor, cell: Cell, made: "_Decision | Round") -> float:
    """Z_down [bit] that is worth its time in such a round, by what is typically lost."""
    offer = offer_of(downlink, int(cell.num_weights))
    return float(offer.size[best_message(offer, made.cost, cell.downlink_bits)])


def typical_pace(network: Network, this_round: Round) -> float:
    """Share of a round's progress that is left with its message down, by what such a message
    typically loses.
    """
    if network.downlink is None:
        return 1.0
    offer = offer_of(network.downlink, int(this_round.cell.num_weights))
    return 1.0 - DELAYED * float(np.interp(this_round.cell.downlink_bits, offer.size, offer.lost))


def next_network(network: Network, before: Round) -> Network:
    """The network as it is after a round in which nobody has learned anything.

    Where the downlink's bits are decided, they are those for the round before and for what is
    typically lost.
    """
    after = replace(network, start=network.start + float(before.cost.time))
    if network.downlink is None or not before.sends.any():
        return after
    return replace(after, downlink_bits=_typical_bits(network.downlink, before.cell, before))


def _planned_alike(networks: Sequence[Network], drawn: Sequence[_Drawn]) -> list[list[int]]:
    """Which networks are planned in one call: those with equal planners that take leading axes, and
    equal sizes.
    """
    groups: list[list[int]] = []
    for place, network in enumerate(networks):
        for group in groups:
            first = networks[group[0]]
            cell = drawn[group[0]].cell
            shape = drawn[group[0]].ue.shape
            if (
                getattr(network.planner, "batched", False)
                and are_equal(network.planner, first.planner)
                and network.outage == first.outage
                and drawn[place].ue.shape == shape
                and network.air.cell.num_ue == first.air.cell.num_ue
                and all(
                    getattr(drawn[place].cell, name) == getattr(cell, name) for name in WHOLE_CELL
                )
            ):
                group.append(place)
                break
        else:
            groups.append([place])
    return groups


def are_equal(one: object, other: object) -> bool:
    """Whether two parts are the same in kind and settings or, where these are arrays, the same
    object.
    """
    try:
        return type(one) is type(other) and bool(one == other)
    except ValueError:
        return one is other


WHOLE_CELL = [field.name for field in fields(Cell) if field.name not in (*Cell.PER_UE, "ue")]
"""Fields of a cell that are one number for all its UEs."""


@dataclass(frozen=True)
class _Decision:
    """What is decided and what follows from it, arrays of shape (..., num_selected)."""

    plan: Plan
    sends: BoolArray
    decoded: BoolArray
    snr: Array
    cost: RoundCost

    def part(self, r: int) -> "_Decision":
        cost = RoundCost(
            **{field.name: getattr(self.cost, field.name)[r] for field in fields(RoundCost)}
        )
        return _Decision(self.plan.part(r), self.sends[r], self.decoded[r], self.snr[r], cost)

    def round(self, k: int, drawn: _Drawn) -> Round:
        known = (drawn.ue, drawn.probability, drawn.cell, *drawn.gains)
        return Round(k, *known, self.plan, self.sends, self.decoded, self.snr, self.cost)


def _decide(network: Network, ues: Cell, gains: Gains, memory: Memory) -> tuple[_Decision, Memory]:
    """Plan, who is heard, cost: lines 6 to 8 of Algorithm 2.

    The planner sees what is known of the gains and chooses rates from it; the true gains decide
    what is decoded.
    """
    plan, memory = _planned(network.planner, ues, gains.known, memory)
    if (problem := plan.problem(ues)) is not None:
        raise AutoFLError(f"planner {type(network.planner).__name__}: {problem}")
    decided = plan.applied(ues)
    sends = plan.feasible & decoded(decided, gains.known, plan.tx_power)
    guess = _unless_true(gains)
    heard = sends if guess is None else sends & arrives(decided, gains.true, guess, plan.tx_power)
    strength = snr(decided, gains.true, plan.tx_power)
    cost = round_cost(ues, gains.true, plan.only(sends), network.outage, guess)
    return _Decision(plan, sends, heard, strength, cost), memory


def _planned(planner: Planner, ues: Cell, known: Array, memory: Memory) -> tuple[Plan, Memory]:
    """The plan, made with what is left of E_max once the model has been received.

    How long that takes depends on who takes part: at first all that are decodable in their own
    bands, then whoever a plan adds to them. So nobody spends more than E_max, and some a little
    less than they might.
    """
    listeners = (
        None
        if ues.receive_power == 0.0 or ues.downlink_power is None
        else decoded(ues, known, ues.max_power)
    )
    while True:
        cell = ues
        if listeners is not None:
            left = ues.max_energy - listening_energy(ues, known, listeners)
            cell = ues.having(max_energy=np.maximum(left, 0.0))
        planned = planner(cell, known, memory)
        if not isinstance(planned, tuple) or len(planned) != 2 or not isinstance(planned[0], Plan):
            raise AutoFLError(
                f"planner {type(planner).__name__}: it must give a Plan and its memory"
            )
        if listeners is None or (listeners | ~planned[0].feasible).all():
            return planned
        listeners = listeners | planned[0].feasible
