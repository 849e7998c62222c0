"""The world of a deployment: updates and evaluations come from the devices that answer as they should."""

import logging
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import ConfigRecord, MessageType, RecordDict

from autofl.compressors import Compressor
from autofl.compressors.base import whole_bytes
from autofl.data.federated import PixelSums
from autofl.deploy.fleet import Fleet
from autofl.deploy.messages import (
    NAN,
    Order,
    checked_params,
    checked_payload,
    digest_of,
    params_bytes,
    params_record,
    pixels_record,
    unpacked,
)
from autofl.deploy.post import Answer, Ask, Expected
from autofl.deploy.schema import FIELDS, OWN_VALUES, SMALL, RefusedError, read, size_of
from autofl.engines import StackedUpdates, UnpackedUpdates, Updates
from autofl.models import Params, num_weights
from autofl.network import Cell
from autofl.records import DeviceRecord, Evaluation
from autofl.rounds.loop import Orders
from autofl.rounds.round import Air, Gains
from autofl.rounds.screen import too_long, why_too_long
from autofl.units import IntArray

log = logging.getLogger("autofl")

REMEMBERED = 10_000
"""Updates whose digests are kept, to know one that comes again."""


class Packed(NamedTuple):
    """A compressed update that came: w_i - w in one row, and its bits."""

    change: torch.Tensor
    bits: float


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
        compressor: Compressor | None = None,
        norm_bound: float = 0.0,
    ) -> None:
        """`emulated` draws the channels; without it the devices report theirs. `evaluated` are the UEs asked for it.

        With a `compressor` updates come packed by it. `norm_bound` is that of `too_long`.
        """
        assert fleet.form is not None
        self._fleet, self._ask, self._cell = fleet, ask, cell
        self._emulated, self._sums, self._evaluated = emulated, sums, evaluated
        self._compressor, self._norm_bound = compressor, norm_bound
        self._model = ConfigRecord({"num-classes": fleet.form.num_classes})
        self._seen: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # of which UE and round an update was
        self.measured: tuple[DeviceRecord, ...] = ()  # updates asked for in the last round
        self._refused: list[DeviceRecord] = []

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

    def refused(self) -> tuple[DeviceRecord, ...]:
        """Whose introduction, channel or evaluation was refused since this was last asked, and why."""
        records, self._refused = (*self._fleet.refused(), *self._refused), []
        return records

    def gains(self, k: int, selected: IntArray, start: float) -> Gains:
        self._fleet.greet()  # a device may have come or gone since
        self.measured = ()
        if self._emulated is not None:
            return self._emulated.gains(k, selected, start)
        there = [int(ue) for ue in selected if self._fleet.is_here(int(ue))]
        gain = np.zeros(len(selected))  # of a device that does not tell: it cannot be heard
        asked = self._exchange({ue: RecordDict() for ue in there}, "query.channel", k, Expected(("measured",)))
        for ue, answer in asked.items():
            try:
                gain[selected == ue] = read(_content(answer), "measured", ("gain",))["gain"]
            except RefusedError as error:
                self._refuse(ue, "channel", str(error))
        return Gains(gain, gain)

    def train(self, sent: Params, k: int, orders: Orders) -> Updates:
        model = params_record(sent)
        contents = {}
        told = [orders.num_samples, orders.local_steps, orders.tx_power, orders.bits_per_weight]
        for ue, *own in zip(orders.ue.tolist(), *(column.tolist() for column in told), strict=True):
            if self._fleet.is_here(ue):
                contents[ue] = self._content(RecordDict({"params": model, "order": Order(k, *own).record()}))
        expected = self._expected(sent, orders)
        arrived: dict[int, Params | Packed] = {}
        guarded: dict[int, int] = {}
        records = {}
        for ue, answer in sorted(self._exchange(contents, MessageType.TRAIN, k, expected).items()):
            budget = float(orders.bits_per_weight[orders.ue == ue][0])
            said, problem = {}, answer.problem
            try:
                said = read(_content(answer), "measured", ("train-time", "guarded"), ("energy",))
                arrived[ue] = self._checked_update(ue, k, _content(answer), sent, budget)
                guarded[ue] = said["guarded"]
            except RefusedError as error:
                problem = str(error)
            records[ue] = DeviceRecord(
                ue=ue,
                outcome=problem or "ok",
                reply_time=answer.seconds,
                train_time=said.get("train-time", NAN),
                energy=said.get("energy", NAN),
                bytes_down=float(size_of(contents[ue])),
                bytes_up=float(size_of(answer.content)) if answer.content is not None else NAN,
            )
        for ue, why in self._too_long(arrived, sent, orders).items():
            del arrived[ue]
            records[ue] = replace(records[ue], outcome=why)
        away = [int(ue) for ue in orders.ue if int(ue) not in contents]
        records |= {ue: DeviceRecord(ue, "not connected") for ue in away}
        self.measured = tuple(records[ue] for ue in sorted(records))
        for lost in (record for record in self.measured if record.outcome != "ok"):
            log.warning("round %d: UE %d is left out: %s", k, lost.ue, lost.outcome)
        return _updates_of(arrived, sent, orders, guarded)

    def _expected(self, sent: Params, orders: Orders) -> Expected:
        if self._compressor is None:
            return Expected(("params", "measured"), params_bytes(sent))
        most = self._compressor.update_bits(num_weights(sent), float(orders.bits_per_weight.max()))
        return Expected(("packed", "measured"), whole_bytes(most) / 8 + SMALL)

    def _checked_update(
        self, ue: int, k: int, content: RecordDict, sent: Params, bits_per_weight: float
    ) -> Params | Packed:
        update: Params | Packed
        if self._compressor is None:
            update = checked_params(content, sent)
            if norm_of(update, sent) == 0.0:
                raise RefusedError("no change: it has not trained")
        else:
            most = whole_bytes(self._compressor.update_bits(num_weights(sent), bits_per_weight))
            payload = checked_payload(content, most)
            update = Packed(unpacked(payload, self._compressor, sent), 8.0 * len(payload))
            if norm_of(update, sent) == 0.0:  # few bits may say nothing, again and again
                return update
        digest = digest_of(content)
        whose, when = self._seen.get(digest, (ue, k))
        if (whose, when) != (ue, k):
            raise RefusedError(f"the update of UE {whose} in round {when} again")
        self._seen[digest] = ue, k
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return update

    def _too_long(self, arrived: Mapping[int, Params | Packed], sent: Params, orders: Orders) -> dict[int, str]:
        ue = np.array(sorted(arrived), dtype=np.int64)
        norm = np.array([norm_of(arrived[i], sent) for i in ue.tolist()])
        place = np.searchsorted(orders.ue, ue)
        steps, samples = orders.local_steps[place], orders.num_samples[place]
        model_norm = math.sqrt(sum(float(p.double().square().sum()) for p in sent.values()))
        rows = np.flatnonzero(too_long(norm, steps, samples, model_norm, self._norm_bound)).tolist()
        return {int(ue[row]): why_too_long(norm, steps, row) for row in rows}

    def evaluate(self, params: Params) -> Evaluation:
        """Means over the devices that answer; NaN where none does."""
        content = self._content(RecordDict({"params": params_record(params)}))
        there = {int(ue): content for ue in self._evaluated if self._fleet.is_here(int(ue))}
        names = [field.name for field in fields(Evaluation) if field.name in FIELDS["quality"]]
        values = []
        asked = self._exchange(there, MessageType.EVALUATE, "evaluation", Expected(("quality",)))
        for ue, answer in sorted(asked.items()):
            try:
                said = read(_content(answer), "quality", names)
                values.append([float(said[name]) for name in names])
            except RefusedError as error:
                self._refuse(ue, "evaluation", str(error))
        means = np.mean(values, axis=0) if values else np.full(len(names), NAN)
        return Evaluation(**dict(zip(names, means.tolist(), strict=True)))

    def _refuse(self, ue: int, what: str, why: str) -> None:
        log.warning("UE %d is left out: %s: %s", ue, what, why)
        self._refused.append(DeviceRecord(ue, f"{what}: {why}"))

    def _content(self, record: RecordDict) -> RecordDict:
        record["model"] = self._model
        if self._sums is not None:
            record["pixels"] = pixels_record(self._sums)
        return record

    def _exchange(
        self, contents: Mapping[int, RecordDict], kind: str, group: int | str, expected: Expected
    ) -> dict[int, Answer]:
        """Ask UEs by their numbers."""
        node = {ue: self._fleet.known[ue].node for ue in contents}
        answers = self._ask({node[ue]: content for ue, content in contents.items()}, kind, str(group), expected)
        return {ue: answers[node[ue]] for ue in contents}


def _content(answer: Answer) -> RecordDict:
    if answer.content is None:
        raise RefusedError(answer.problem)
    return answer.content


def norm_of(update: Params | Packed, sent: Params) -> float:
    """|w_i - w|, in double precision: the square of a large float32 is no float32."""
    if isinstance(update, Packed):
        return float(update.change.double().norm())
    return math.sqrt(sum(float((p.double() - sent[name].double()).square().sum()) for name, p in update.items()))


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
