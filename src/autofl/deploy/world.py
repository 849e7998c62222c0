"""The world of a deployment: channels, updates and evaluations come from the devices that answer as
they should.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import MessageType, RecordDict

from autofl.compressors import Compressor
from autofl.compressors.base import whole_bytes
from autofl.core.round import Air, Round
from autofl.data.federated import PixelSums
from autofl.deploy.arrays import params_bytes, params_record, pixels_record
from autofl.deploy.arrival import Arrival, arrival_of, length
from autofl.deploy.fleet import Fleet, Known
from autofl.deploy.messages import OWN_VALUES, SMALL, Form, Gain, Judged, Order, Trained, size_of
from autofl.deploy.overhead import Overheads
from autofl.deploy.post import NAN, Answer, Expected
from autofl.engines import ReceivedUpdates, Updates, flat
from autofl.models import Params, num_weights
from autofl.network import Cell
from autofl.quality import Evaluation
from autofl.records import DeviceRecord
from autofl.robust.checks import Bounds, Checks
from autofl.units import Array, IntArray

log = logging.getLogger("autofl")


class Devices:
    """The world of a deployment."""

    def __init__(
        self,
        fleet: Fleet,
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
        self._cell = cell
        self._emulated = emulated
        self._evaluated = evaluated
        self._compressor = compressor
        self._checks = checks or Checks(Bounds())
        self._sums = sums
        self._overheads = overheads
        self._slow = slow
        self._as_known: tuple[float | None, list[tuple[int, Known]], Cell] | None = None
        self._refused: list[DeviceRecord] = []
        self._evaluating = 0.0  # seconds spent on evaluations so far
        self.measured: tuple[DeviceRecord, ...] = ()
        """Updates asked for in the last round."""
        self.lost: dict[int, str] = {}
        """Who took no part in the last round though it was to, and why."""

        # What every message with a model brings along.
        self._along: dict[str, Any] = {Form.part: fleet.form.written()}
        if sums is not None:
            self._along["pixels"] = pixels_record(sums)

    @property
    def clock(self) -> float:
        """Seconds since some time, evaluations apart."""
        return time.monotonic() - self._evaluating

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
            values["data_size"][ue] = one.said.data_size
            for name, value in one.said.own.items():
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
        asked = [ue for ue in selected.tolist() if self._fleet.is_here(ue)]
        expected = Expected((Gain.part,), lambda _, content: Gain.of(content).gain)
        contents = {ue: RecordDict() for ue in asked}
        answers = self._fleet.ask(contents, "query.channel", str(k), expected)

        # A device that does not tell its gain cannot be heard.
        told = self._accepted(answers, "channel")
        self.lost = {ue: "not connected" for ue in selected.tolist() if ue not in answers}
        self.lost |= {
            ue: f"channel: {answer.problem}" for ue, answer in answers.items() if answer.problem
        }
        gain = np.array([told.get(ue, 0.0) for ue in selected.tolist()])
        return gain, gain

    def train(
        self, runs: Sequence[int], rounds: Sequence[Round], sent: Sequence[Params]
    ) -> list[Updates | None]:
        [this] = rounds
        return [self._updates(this, sent[0]) if this.decoded.any() else None]

    def _updates(self, this: Round, sent: Params) -> Updates:
        """The updates of a round that came and passed all checks; what became of the others is
        noted.
        """
        orders = orders_of(this)
        model = params_record(sent)
        contents = {
            ue: RecordDict({"params": model, Order.part: order.written(), **self._along})
            for ue, order in orders.items()
            if self._fleet.is_here(ue)
        }
        expected = self._expected(sent, orders)
        answers = self._fleet.ask(contents, MessageType.TRAIN, str(this.k), expected)
        arrivals = {ue: _arrival(answer) for ue, answer in sorted(answers.items())}
        problems = {ue: one.problem for ue, one in arrivals.items() if one.problem}

        # What came before may not come again, even from another device.
        for ue, one in arrivals.items():
            if one.digest is not None and (why := self._checks.again(ue, this.k, one.digest)):
                problems[ue] = why

        # Then each is judged among the others, and known liars are taken out of the model.
        good = {ue: one for ue, one in arrivals.items() if ue not in problems}
        refused, added = self._judged(good, sent, this)
        problems |= refused
        good = {ue: one for ue, one in good.items() if ue not in refused}
        if added is not None:
            for (ue, one), more in zip(good.items(), added, strict=True):
                good[ue] = replace(one, change=one.change + more)

        self._note(this.k, orders, contents, answers, arrivals, problems)
        return _updates_of(good, sent, this)

    def _expected(self, sent: Params, orders: Mapping[int, Order]) -> Expected:
        def read(ue: int, content: RecordDict) -> Arrival:
            return arrival_of(content, sent, self._compressor, orders[ue].bits_per_weight)

        if self._compressor is None:
            return Expected(("params", Trained.part), read, params_bytes(sent))
        bits_per_weight = max(order.bits_per_weight for order in orders.values())
        most_bits = self._compressor.update_bits(num_weights(sent), bits_per_weight)
        return Expected(("packed", Trained.part), read, whole_bytes(most_bits) / 8 + SMALL)

    def _judged(
        self, arrivals: Mapping[int, Arrival], sent: Params, this: Round
    ) -> tuple[dict[int, str], torch.Tensor | None]:
        """Who is refused and why, and what is added to the others' changes."""
        ue = np.array(list(arrivals), dtype=np.int64)
        norm = np.array([one.norm for one in arrivals.values()])
        row = this.row_of(ue)
        model_norm = length(flat(sent).double())
        steps = this.plan.local_steps[row]
        samples = this.plan.num_samples[row]
        return self._checks(
            ue, norm, steps, samples, model_norm, lambda: torch.stack(changes_of(arrivals))
        )

    def _note(
        self,
        k: int,
        orders: Mapping[int, Order],
        contents: Mapping[int, RecordDict],
        answers: Mapping[int, Answer],
        arrivals: Mapping[int, Arrival],
        problems: Mapping[int, str],
    ) -> None:
        """What became of each order, for devices.csv."""
        records = []
        for ue in sorted(orders):
            if ue not in answers:
                records.append(DeviceRecord(ue, "not connected"))
                continue
            answer = answers[ue]
            said = arrivals[ue].measured
            records.append(
                DeviceRecord(
                    ue=ue,
                    outcome=problems.get(ue, "ok"),
                    reply_time=answer.seconds,
                    train_time=said.train_time,
                    energy=NAN if said.energy is None else said.energy,
                    bytes_down=float(size_of(contents[ue])),
                    bytes_up=answer.num_bytes,
                    send_time=answer.sending,
                )
            )
        self.measured = tuple(records)
        for record in records:
            if record.outcome != "ok":
                log.warning("round %d: UE %d is left out: %s", k, record.ue, record.outcome)
                self.lost[record.ue] = record.outcome

    def evaluate(self, runs: Sequence[int], models: Sequence[Params]) -> list[Evaluation]:
        """Medians over the devices that answer, since one may say anything; NaN where none does."""
        [params] = models
        begin = time.monotonic()
        content = RecordDict({"params": params_record(params), **self._along})
        contents = {ue: content for ue in self._evaluated.tolist() if self._fleet.is_here(ue)}
        expected = Expected((Judged.part,), lambda _, content: Judged.of(content))
        answers = self._fleet.ask(contents, MessageType.EVALUATE, "evaluation", expected)
        said = list(self._accepted(answers, "evaluation").values())
        medians = {}
        if said:
            for name in Judged.model_fields:
                medians[name] = float(np.median([getattr(one, name) for one in said]))
        self._evaluating += time.monotonic() - begin
        return [Evaluation(**medians)]

    def _accepted(self, answers: Mapping[int, Answer], what: str) -> dict[int, Any]:
        """What was read, by UE; who gave nothing that can be used is noted."""
        for ue, answer in sorted(answers.items()):
            if answer.problem:
                log.warning("UE %d is left out: %s: %s", ue, what, answer.problem)
                self._refused.append(DeviceRecord(ue, f"{what}: {answer.problem}"))
        return {ue: answer.value for ue, answer in sorted(answers.items()) if not answer.problem}


def _arrival(answer: Answer) -> Arrival:
    return Arrival(problem=answer.problem) if answer.problem else answer.value


def changes_of(arrivals: Mapping[int, Arrival]) -> list[torch.Tensor]:
    """w_i - w of each, in the order of their numbers."""
    return [one.change for one in arrivals.values()]


def _updates_of(arrivals: Mapping[int, Arrival], sent: Params, this: Round) -> Updates:
    """Their mean does not depend on the order in which replies came."""
    ue = np.array(list(arrivals), dtype=np.int64)
    steps = this.plan.local_steps[this.row_of(ue)]
    guarded = np.array([one.measured.guarded for one in arrivals.values()], dtype=np.int64)
    # All came packed, or none.
    bits = np.array([one.bits for one in arrivals.values()])
    is_packed = len(bits) > 0 and not np.isnan(bits).any()
    changes = changes_of(arrivals)
    return ReceivedUpdates(ue, changes, sent, steps, guarded, bits if is_packed else None)


def orders_of(this: Round) -> dict[int, Order]:
    """What each UE that trains in a round is told, by its number."""
    plan = this.orders
    bits = plan.bits_per_weight * this.cell.num_weights
    compute_time = this.cost.compute_time[this.decoded]
    upload_rate = bits / this.cost.upload_time[this.decoded]
    return {
        ue: Order.saying(
            round=this.k,
            ue=ue,
            num_samples=int(plan.num_samples[row]),
            local_steps=int(plan.local_steps[row]),
            tx_power=float(plan.tx_power[row]),
            bits_per_weight=float(plan.bits_per_weight[row]),
            compute_time=float(compute_time[row]),
            upload_rate=float(upload_rate[row]),
        )
        for row, ue in enumerate(this.ue[this.decoded].tolist())
    }


def sums_of(world: Mapping[str, Any]) -> PixelSums | None:
    """The sums by which pixels are standardised, from what a world remembered; None without any."""
    if "pixels.num" not in world:
        return None
    return PixelSums(int(world["pixels.num"]), world["pixels.total"], world["pixels.squares"])
