"""The world of a deployment: updates and evaluations come from the devices that answer as they
should.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, MessageType, RecordDict

from autofl.compressors import Compressor
from autofl.compressors.base import whole_bytes
from autofl.core.round import Air, Round
from autofl.data.federated import PixelSums
from autofl.deploy.arrival import Arrival, Packed, Reader, length
from autofl.deploy.fleet import Fleet, Introduction
from autofl.deploy.messages import NAN, Order, params_bytes, params_record, pixels_record
from autofl.deploy.overhead import Overheads
from autofl.deploy.post import Answer, Ask, Expected
from autofl.deploy.schema import FIELDS, OWN_VALUES, SMALL, RefusedError, read, refusing, size_of
from autofl.engines import ReceivedUpdates, Updates, flat
from autofl.models import Params, num_weights
from autofl.network import Cell
from autofl.quality import Evaluation
from autofl.records import DeviceRecord
from autofl.rounds.checks import Bounds, Checks
from autofl.units import Array, IntArray

log = logging.getLogger("autofl")


class Devices:
    """The world of a deployment: updates and evaluations come from the devices that answer as they
    should.
    """

    def __init__(
        self,
        fleet: Fleet,
        ask: Ask,
        cell: Cell,
        emulated: Air | None,
        sums: PixelSums | None,
        evaluated: IntArray,
        compressor: Compressor | None = None,
        checks: Checks | None = None,
        overheads: Overheads | None = None,
        slow: float = 1.0,
    ) -> None:
        """`emulated` draws the channels; without it the devices report theirs. `evaluated` are the
        UEs asked for it.

        With a `compressor` updates come packed by it. On a testbed all is `slow` times slower than
        modelled.
        """
        assert fleet.form is not None
        self._fleet = fleet
        self._ask = ask
        self._cell = cell
        self._emulated = emulated
        self._evaluated = evaluated
        self._compressor = compressor
        self._checks = checks or Checks(Bounds())
        self._model = ConfigRecord({"num-classes": fleet.form.num_classes})
        self._sums = sums
        self._pixels = None if sums is None else pixels_record(sums)
        self._overheads = overheads
        self._slow = slow
        self._as_known: tuple[float | None, list[tuple[int, Introduction]], Cell] | None = None
        self.evaluating = 0.0  # seconds spent on evaluations so far
        self.measured: tuple[DeviceRecord, ...] = ()  # updates asked for in the last round
        self.lost: dict[
            int, str
        ] = {}  # who took no part in the last round though it was to, and why
        self._refused: list[DeviceRecord] = []

    @property
    def cell(self) -> Cell:
        """The cell of the settings with what the devices report; a device that never came has no
        data.
        """
        overhead = None if self._overheads is None else self._overheads.of_round
        known = list(self._fleet.known.items())
        if self._as_known is None or self._as_known[:2] != (overhead, known):
            self._as_known = overhead, known, self._cell_as_known(overhead)
        return self._as_known[2]

    def _cell_as_known(self, overhead: float | None) -> Cell:
        values: dict[str, Any] = {name: np.array(getattr(self._cell, name)) for name in OWN_VALUES}
        values["data_size"] = np.zeros(self._cell.num_ue)
        for ue, one in self._fleet.known.items():
            values["data_size"][ue] = one.data_size
            for name, value in one.own.items():
                values[name][ue] = value
        if overhead is not None:
            values["overhead"] = overhead / self._slow  # the model's seconds are that much shorter
        return replace(self._cell, **values)

    def remembered(self, run: int) -> dict[str, Any]:
        """What the checks of updates remember, and the sums by which pixels are standardised."""
        kept = {f"checks.{name}": np.array(held) for name, held in self._checks.state().items()}
        if self._sums is not None:
            kept["pixels.num"] = np.array(self._sums.num)
            kept |= {"pixels.total": self._sums.total, "pixels.squares": self._sums.squares}
        return kept

    def refused(self) -> tuple[DeviceRecord, ...]:
        """Devices whose introduction, channel or evaluation was refused since the last call, and
        why.
        """
        records = (*self._fleet.refused(), *self._refused)
        self._refused = []
        return records

    def gains(self, seed: int, k: int, selected: IntArray, start: float) -> tuple[Array, Array]:
        self._fleet.greet()  # a device may have come or gone since
        self.measured = ()
        self.lost = {}
        if self._emulated is not None:
            return self._emulated.gains(seed, k, selected, start)
        there = [int(ue) for ue in selected if self._fleet.is_here(int(ue))]
        self.lost = {int(ue): "not connected" for ue in selected if int(ue) not in there}
        gain = np.zeros(len(selected))  # of a device that does not tell: it cannot be heard
        asked = self._exchange(
            {ue: RecordDict() for ue in there}, "query.channel", k, Expected(("measured",))
        )
        for ue, answer in asked.items():
            try:
                with refusing():
                    gain[selected == ue] = read(_content(answer), "measured", ("gain",))["gain"]
            except RefusedError as error:
                self._refuse(ue, "channel", str(error))
                self.lost[ue] = f"channel: {error}"
        return gain, gain

    def train(
        self, runs: Sequence[int], rounds: Sequence[Round], sent: Sequence[Params]
    ) -> list[Updates | None]:
        [this] = rounds
        return [self._updates(this, sent[0]) if this.decoded.any() else None]

    def _updates(self, this: Round, sent: Params) -> Updates:
        k = this.k
        model = params_record(sent)
        contents = {}
        orders = orders_of(this)
        for ue, order in orders.items():
            if self._fleet.is_here(ue):
                record = RecordDict({"params": model, "order": order.record()})
                contents[ue] = self._content(record)
        arrived: dict[int, Arrival] = {}
        records = {}
        expected = self._expected(sent, orders)
        for ue, answer in sorted(self._exchange(contents, MessageType.TRAIN, k, expected).items()):
            arrival = (
                answer.reading
                if isinstance(answer.reading, Arrival)
                else Arrival(problem=answer.problem)
            )
            why = arrival.problem if arrival.update is None else None
            if arrival.digest is not None:
                why = self._checks.again(ue, k, arrival.digest)
            if why is None:
                arrived[ue] = arrival
            records[ue] = DeviceRecord(
                ue=ue,
                outcome="ok" if why is None else why,
                reply_time=answer.seconds,
                train_time=arrival.measured.get("train-time", NAN),
                energy=arrival.measured.get("energy", NAN),
                bytes_down=float(size_of(contents[ue])),
                bytes_up=float(size_of(answer.content)) if answer.content is not None else NAN,
                send_time=answer.sending,
            )
        refused, added = self._checked(arrived, sent, this)
        for ue, why in refused.items():
            del arrived[ue]
            records[ue] = replace(records[ue], outcome=why)
        if added is not None:
            arrived = {
                ue: arrived[ue].moved(move, sent)
                for ue, move in zip(sorted(arrived), added, strict=True)
            }
        away = orders.keys() - contents.keys()
        records |= {ue: DeviceRecord(ue, "not connected") for ue in away}
        self.measured = tuple(records[ue] for ue in sorted(records))
        for lost in (record for record in self.measured if record.outcome != "ok"):
            log.warning("round %d: UE %d is left out: %s", k, lost.ue, lost.outcome)
            self.lost[lost.ue] = lost.outcome
        return _updates_of(arrived, sent, this)

    def _expected(self, sent: Params, orders: Mapping[int, Order]) -> Expected:
        reader = Reader(sent, self._compressor)

        def arrival_of(ue: int, content: RecordDict) -> Arrival:
            return reader(content, orders[ue].bits_per_weight)

        if self._compressor is None:
            return Expected(("params", "measured"), params_bytes(sent), arrival_of, len(sent))
        most = self._compressor.update_bits(
            num_weights(sent), max(order.bits_per_weight for order in orders.values())
        )
        return Expected(("packed", "measured"), whole_bytes(most) / 8 + SMALL, arrival_of)

    def _checked(
        self, arrived: Mapping[int, Arrival], sent: Params, this: Round
    ) -> tuple[dict[int, str], torch.Tensor | None]:
        ue = np.array(sorted(arrived), dtype=np.int64)
        norm = np.array([arrived[i].norm for i in ue.tolist()])
        row = this.row_of(ue)
        steps = this.plan.local_steps[row]
        samples = this.plan.num_samples[row]
        return self._checks(
            ue, norm, steps, samples, length(flat(sent).double()), lambda: changes_of(arrived, sent)
        )

    def evaluate(self, runs: Sequence[int], models: Sequence[Params]) -> list[Evaluation]:
        """Medians over the devices that answer, since one may say anything; NaN where none does."""
        [params] = models
        begin = time.monotonic()
        content = self._content(RecordDict({"params": params_record(params)}))
        there = {int(ue): content for ue in self._evaluated if self._fleet.is_here(int(ue))}
        names = [field.name for field in fields(Evaluation) if field.name in FIELDS["quality"]]
        values = []
        asked = self._exchange(there, MessageType.EVALUATE, "evaluation", Expected(("quality",)))
        for ue, answer in sorted(asked.items()):
            try:
                with refusing():
                    said = read(_content(answer), "quality", names)
                    values.append([float(said[name]) for name in names])
            except RefusedError as error:
                self._refuse(ue, "evaluation", str(error))
        medians = np.median(values, axis=0) if values else np.full(len(names), NAN)
        self.evaluating += time.monotonic() - begin
        return [Evaluation(**dict(zip(names, medians.tolist(), strict=True)))]

    def _refuse(self, ue: int, what: str, why: str) -> None:
        log.warning("UE %d is left out: %s: %s", ue, what, why)
        self._refused.append(DeviceRecord(ue, f"{what}: {why}"))

    def _content(self, record: RecordDict) -> RecordDict:
        record["model"] = self._model
        if self._pixels is not None:
            record["pixels"] = self._pixels
        return record

    def _exchange(
        self, contents: Mapping[int, RecordDict], kind: str, group: int | str, expected: Expected
    ) -> dict[int, Answer]:
        """Ask UEs by their numbers; the reader is told these too."""
        ue_of = {self._fleet.known[ue].node: ue for ue in contents}
        by_node = expected._replace(
            reader=lambda node, content: expected.reader(ue_of[node], content)
        )
        answers = self._ask(
            {node: contents[ue] for node, ue in ue_of.items()}, kind, str(group), by_node
        )
        return {ue: answers[node] for node, ue in ue_of.items()}


def _content(answer: Answer) -> RecordDict:
    if answer.content is None:
        raise RefusedError(answer.problem)
    return answer.content


def changes_of(arrived: Mapping[int, Arrival], sent: Params) -> torch.Tensor:
    """w_i - w, a row for each UE in the order of their numbers."""
    return torch.stack([arrival.change(sent) for _, arrival in sorted(arrived.items())])


def _updates_of(arrived: Mapping[int, Arrival], sent: Params, this: Round) -> Updates:
    """Their mean does not depend on the order in which replies came."""
    ue = np.array(sorted(arrived), dtype=np.int64)
    arrivals = [arrived[i] for i in ue.tolist()]
    guarded = np.array([arrival.measured["guarded"] for arrival in arrivals], dtype=np.int64)
    packed = [arrival.update for arrival in arrivals if isinstance(arrival.update, Packed)]
    bits = np.array([update.bits for update in packed]) if packed else None
    changes = [arrival.change(sent) for arrival in arrivals]
    steps = this.plan.local_steps[this.row_of(ue)]
    return ReceivedUpdates(ue, changes, sent, steps, guarded, bits)


def orders_of(this: Round) -> dict[int, Order]:
    """What each UE that trains in a round is told, by its number."""
    plan = this.orders
    ue = this.ue[this.decoded]
    bits = plan.bits_per_weight * this.cell.num_weights
    compute_time = this.cost.compute_time[this.decoded]
    upload_rate = bits / this.cost.upload_time[this.decoded]
    return {
        int(one): Order(
            round=this.k,
            ue=int(one),
            num_samples=int(plan.num_samples[row]),
            local_steps=int(plan.local_steps[row]),
            tx_power=float(plan.tx_power[row]),
            bits_per_weight=float(plan.bits_per_weight[row]),
            compute_time=float(compute_time[row]),
            upload_rate=float(upload_rate[row]),
        )
        for row, one in enumerate(ue)
    }


def sums_of(world: Mapping[str, Any]) -> PixelSums | None:
    """The sums by which pixels are standardised, from what a world remembered; None without any."""
    if "pixels.num" not in world:
        return None
    return PixelSums(int(world["pixels.num"]), world["pixels.total"], world["pixels.squares"])
