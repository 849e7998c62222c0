"""The devices as the server sees them: who is who, asking them with a deadline, and the world they make."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from autofl.compressors import Compressor
from autofl.compressors.base import whole_bytes
from autofl.data.federated import PixelSums
from autofl.deploy.messages import (
    NAN,
    Order,
    RefusedError,
    checked_params,
    checked_payload,
    content_of,
    measured,
    params_record,
    pixels_of,
    pixels_record,
    quality,
    size_of,
    unpacked,
    whole,
)
from autofl.engines import StackedUpdates, UnpackedUpdates, Updates
from autofl.models import Params, num_weights
from autofl.network import Cell
from autofl.records import DeviceRecord, Evaluation
from autofl.rounds.loop import Orders
from autofl.rounds.round import Air, Gains
from autofl.units import IntArray

log = logging.getLogger("autofl")

POLL = 0.2
"""Seconds between looks for replies."""
GRACE = 15.0
"""Seconds for which Flower keeps a message longer than we wait for its reply: the deadline is ours to tell."""
OWN_VALUES = ("distance", "cycles_per_sample", "cpu_frequency", "max_energy", "max_power", "bandwidth")
"""What a device may know better than the settings do; names of `Cell`."""


@dataclass(frozen=True)
class Introduction:
    """What a device says of itself when it is first asked."""

    node: int  # Flower's number, new with every registration
    ue: int
    data_size: int
    num_classes: int
    sample_shape: tuple[int, ...]
    sums: PixelSums | None
    own: Mapping[str, float]  # of OWN_VALUES


@dataclass(frozen=True)
class Answer:
    """A reply and how long it took, or why there is none."""

    content: RecordDict | None
    seconds: float
    problem: str = ""


class Packed(NamedTuple):
    """A compressed update that came: w_i - w in one row, and its bits."""

    change: torch.Tensor
    bits: float


Ask = Callable[[Mapping[int, RecordDict], str, str], dict[int, Answer]]


@dataclass(frozen=True)
class Post:
    """Messages out, replies in, each exchange within its deadline."""

    grid: Grid
    deadline: float

    def __call__(self, contents: Mapping[int, RecordDict], message_type: str, group: str) -> dict[int, Answer]:
        """Ask these nodes, one content each; every node gets an answer, if only that none came in time."""
        nodes = list(contents)
        messages = [
            Message(contents[node], node, message_type, ttl=self.deadline + GRACE, group_id=group) for node in nodes
        ]
        begin = time.monotonic()
        waiting = dict(zip(self.grid.push_messages(messages), nodes, strict=True)) if messages else {}
        answers = {node: Answer(None, NAN, "could not be sent") for node in nodes if node not in waiting.values()}
        while waiting:
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    answers[node] = self._answer(reply, time.monotonic() - begin)
            if time.monotonic() - begin > self.deadline:
                break
            if waiting:
                time.sleep(POLL)
        late = Answer(None, NAN, f"no reply within {self.deadline:g} s")
        return {**answers, **dict.fromkeys(waiting.values(), late)}

    def _answer(self, reply: Message, seconds: float) -> Answer:
        try:
            return Answer(content_of(reply), seconds)
        except RefusedError as error:
            return Answer(None, seconds, str(error))


class Fleet:
    """Who is who: Flower's node numbers are random, so every new node is asked once which UE it is."""

    def __init__(self, grid: Grid, ask: Ask, num_ue: int) -> None:
        self._grid, self._ask, self._num_ue = grid, ask, num_ue
        self._online: set[int] = set()
        self.known: dict[int, Introduction] = {}

    def gather(self, seconds: float) -> None:
        """Wait until every UE has introduced itself, or this long."""
        end = time.monotonic() + seconds
        self.greet()
        while len(self.known) < self._num_ue and time.monotonic() < end:
            time.sleep(1.0)
            self.greet()
        if missing := sorted(set(range(self._num_ue)) - set(self.known)):
            log.warning("no word of UEs %s within %g s; they take no part until they come", missing, seconds)

    def greet(self) -> None:
        """Ask the nodes that are new."""
        online = set(self._grid.get_node_ids())
        new, self._online = sorted(online - self._online), online
        answers = self._ask({node: RecordDict({"order": ConfigRecord()}) for node in new}, "query.introduce", "join")
        for node in new:
            try:
                self._add(node, answers[node])
            except RefusedError as error:
                log.warning("node %d takes no part: %s", node, error)

    def is_here(self, ue: int) -> bool:
        return ue in self.known and self.known[ue].node in self._online

    def _add(self, node: int, answer: Answer) -> None:
        if answer.content is None:
            raise RefusedError(answer.problem)
        one = introduction(node, answer.content)
        if not 0 <= one.ue < self._num_ue:
            raise RefusedError(f"it calls itself UE {one.ue}; the cell has UEs 0 to {self._num_ue - 1}")
        if self.is_here(one.ue) and self.known[one.ue].node != node:
            raise RefusedError(f"it calls itself UE {one.ue}, which node {self.known[one.ue].node} is already")
        log.info("UE %d is here: %d samples", one.ue, one.data_size)
        self.known[one.ue] = one


def introduction(node: int, content: RecordDict) -> Introduction:
    """What a device says of itself, checked."""
    said = content.config_records.get("device", ConfigRecord())
    try:
        shape = tuple(int(str(extent)) for extent in _listed(said["sample-shape"]))
        ue, size, classes = (int(str(said[name])) for name in ("ue", "data-size", "num-classes"))
        own = {name: float(str(said[name])) for name in OWN_VALUES if name in said}
    except (KeyError, ValueError) as error:
        raise RefusedError(f"its introduction lacks {error}") from None
    if size < 1 or not 1 <= classes <= 100_000 or not all(1 <= extent <= 100_000 for extent in shape):
        raise RefusedError("its introduction has numbers out of range")
    if not all(math.isfinite(value) and value > 0 for value in own.values()):
        raise RefusedError("its introduction has values that are not positive")
    return Introduction(node, ue, size, classes, shape, pixels_of(content, shape), own)


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]


def total_sums(fleet: Mapping[int, Introduction]) -> PixelSums | None:
    """Pixel sums over all devices; whole numbers, so their order does not matter."""
    parts = [one.sums for one in fleet.values() if one.sums is not None]
    if not parts:
        return None
    total, squares = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("total", "squares"))
    return PixelSums(sum(part.num for part in parts), total, squares)


class Devices:
    """The world of a deployment: updates and evaluations come from the devices that answer as they should."""

    def __init__(
        self,
        fleet: Fleet,
        ask: Ask,
        cell: Cell,
        emulated: Air | None,
        sums: PixelSums | None,
        evaluated: IntArray,
        num_classes: int,
        compressor: Compressor | None = None,
    ) -> None:
        """`emulated` draws the channels; without it the devices report theirs. `evaluated` are the UEs asked for it.

        With a `compressor` updates come packed by it.
        """
        self._fleet, self._ask, self._cell = fleet, ask, cell
        self._emulated, self._sums, self._evaluated = emulated, sums, evaluated
        self._compressor = compressor
        self._model = ConfigRecord({"num-classes": num_classes})
        self.measured: tuple[DeviceRecord, ...] = ()  # of the last round

    @property
    def cell(self) -> Cell:
        """The cell of the settings with what the devices say of themselves; one that never came has no data."""
        values: dict[str, Any] = {name: np.array(getattr(self._cell, name)) for name in OWN_VALUES}
        values["data_size"] = np.zeros(self._cell.num_ue)
        for ue, one in self._fleet.known.items():
            values["data_size"][ue] = one.data_size
            for name, value in one.own.items():
                values[name][ue] = value
        return replace(self._cell, **values)

    def gains(self, k: int, selected: IntArray, start: float) -> Gains:
        self._fleet.greet()  # a device may have come or gone since
        self.measured = ()
        if self._emulated is not None:
            return self._emulated.gains(k, selected, start)
        there = [int(ue) for ue in selected if self._fleet.is_here(int(ue))]
        blank = {ue: RecordDict({"order": ConfigRecord({"round": k})}) for ue in there}
        gain = np.zeros(len(selected))  # of a device that does not tell: it cannot be heard
        for ue, answer in self._exchange(blank, "query.channel", k).items():
            value = measured(answer.content, "gain") if answer.content is not None else NAN
            if math.isnan(value):
                log.warning("round %d: UE %d does not tell its channel: %s", k, ue, answer.problem or "no number")
            else:
                gain[selected == ue] = value
        return Gains(gain, gain)

    def train(self, sent: Params, k: int, orders: Orders) -> Updates:
        model = params_record(sent)
        contents = {}
        told = [orders.num_samples, orders.local_steps, orders.tx_power, orders.bits_per_weight]
        for ue, *own in zip(orders.ue.tolist(), *(column.tolist() for column in told), strict=True):
            if self._fleet.is_here(ue):
                contents[ue] = self._content(RecordDict({"params": model, "order": Order(k, *own).record()}))
        arrived: dict[int, Params | Packed] = {}
        guarded: dict[int, int] = {}
        records = []
        for ue, answer in sorted(self._exchange(contents, MessageType.TRAIN, k).items()):
            budget = float(orders.bits_per_weight[orders.ue == ue][0])
            record, update = self._checked_update(ue, answer, sent, size_of(contents[ue]), budget)
            records.append(record)
            if update is not None:
                arrived[ue], guarded[ue] = update, whole(answer.content, "guarded")
        away = [int(ue) for ue in orders.ue if int(ue) not in contents]
        self.measured = tuple(sorted([*records, *(DeviceRecord(ue, "not connected") for ue in away)], key=_number))
        for lost in (record for record in self.measured if record.outcome != "ok"):
            log.warning("round %d: UE %d is left out: %s", k, lost.ue, lost.outcome)
        return _updates_of(arrived, sent, orders, guarded)

    def _checked_update(
        self, ue: int, answer: Answer, sent: Params, down: int, bits_per_weight: float
    ) -> "tuple[DeviceRecord, Params | Packed | None]":
        content, problem = answer.content, answer.problem
        update: Params | Packed | None = None
        if content is not None:
            try:
                if self._compressor is None:
                    update = checked_params(content, sent)
                else:
                    most = whole_bytes(self._compressor.update_bits(num_weights(sent), bits_per_weight))
                    payload = checked_payload(content, most)
                    update = Packed(unpacked(payload, self._compressor, sent), 8.0 * len(payload))
            except RefusedError as error:
                problem = str(error)
        return DeviceRecord(
            ue=ue,
            outcome=problem or "ok",
            reply_time=answer.seconds,
            train_time=measured(content, "train-time") if content is not None else NAN,
            energy=measured(content, "energy") if content is not None else NAN,
            bytes_down=float(down),
            bytes_up=float(size_of(content)) if content is not None else NAN,
        ), update

    def evaluate(self, params: Params) -> Evaluation:
        """Means over the devices that answer; NaN where none does."""
        content = self._content(RecordDict({"params": params_record(params), "order": ConfigRecord()}))
        there = {int(ue): content for ue in self._evaluated if self._fleet.is_here(int(ue))}
        names = [field.name for field in fields(Evaluation) if field.name != "gradient_norm_sq"]
        values = []
        for ue, answer in sorted(self._exchange(there, MessageType.EVALUATE, "evaluation").items()):
            try:
                if answer.content is None:
                    raise RefusedError(answer.problem)
                values.append([quality(answer.content, name) for name in names])
            except RefusedError as error:
                log.warning("UE %d is not part of this evaluation: %s", ue, error)
        means = np.mean(values, axis=0) if values else np.full(len(names), NAN)
        return Evaluation(**dict(zip(names, means.tolist(), strict=True)))

    def _content(self, record: RecordDict) -> RecordDict:
        record["model"] = self._model
        if self._sums is not None:
            record["pixels"] = pixels_record(self._sums)
        return record

    def _exchange(self, contents: Mapping[int, RecordDict], kind: str, group: int | str) -> dict[int, Answer]:
        """Ask UEs by their numbers."""
        node = {ue: self._fleet.known[ue].node for ue in contents}
        answers = self._ask({node[ue]: content for ue, content in contents.items()}, kind, str(group))
        return {ue: answers[node[ue]] for ue in contents}


def _updates_of(
    arrived: Mapping[int, Params | Packed], sent: Params, orders: Orders, guarded: Mapping[int, int]
) -> Updates:
    """Both sum in an order that does not depend on the order in which replies came."""
    ue = np.array(sorted(arrived), dtype=np.int64)
    counts = np.array([guarded[i] for i in ue.tolist()], dtype=np.int64)
    packed = [update for _, update in sorted(arrived.items()) if isinstance(update, Packed)]
    if packed:
        steps = orders.local_steps[np.searchsorted(orders.ue, ue)]
        bits = np.array([update.bits for update in packed])
        return UnpackedUpdates(ue, steps, [update.change for update in packed], bits, sent, counts)
    params = [update for _, update in sorted(arrived.items()) if not isinstance(update, Packed)]
    stacked = {name: torch.stack([own[name] for own in params]) for name in sent} if params else {}
    return StackedUpdates(ue, stacked, sent, counts)


def _number(record: DeviceRecord) -> int:
    return record.ue
