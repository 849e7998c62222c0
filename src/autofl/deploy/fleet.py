"""Who is who: which node is which UE, what it says of itself, and who is left out."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from autofl.data.federated import PixelSums
from autofl.deploy.messages import HEADER, pixels_of
from autofl.deploy.post import Answer, Ask, Expected
from autofl.deploy.schema import (
    FIELDS,
    MOST_PIXELS,
    MOST_SAMPLES,
    OWN_FACTOR,
    OWN_VALUES,
    SAYS,
    SMALL,
    RefusedError,
    read,
    refusing,
)
from autofl.network import Cell
from autofl.records import DeviceRecord
from autofl.records.devices import NOBODY

log = logging.getLogger("autofl")

LOOK = 1.0
"""Seconds between looks for devices that have not come yet, at the start."""
LONGEST_PAUSE = 64
"""Rounds between questions to a node that does not introduce itself: 1, 2, 4, ... up to this many.
"""
FEWEST = 3
"""Fewest devices whose median says something about the others."""
SIZE_FACTOR = 50.0
"""How many times the median number of samples a device may claim: plans and pixel sums rely on it.
"""
PIXEL_FACTOR = 5.0
"""How far its mean pixel, and its mean squared pixel, may lie from the median of the devices."""


@dataclass(frozen=True, eq=False)
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
class Form:
    """What the samples of a run look like. It comes from the server, or from what most devices say
    at the start.
    """

    sample_shape: tuple[int, ...]
    num_classes: int

    def check(self, one: Introduction) -> None:
        if one.sample_shape != self.sample_shape:
            raise RefusedError(f"samples of shape {one.sample_shape}, not {self.sample_shape}")
        if one.num_classes > self.num_classes:
            raise RefusedError(
                f"{one.num_classes} classes, not {self.num_classes}; to begin a run for all of them, set"
                f" deploy.sample_shape={list(one.sample_shape)} and deploy.num_classes={one.num_classes}"
            )


class Refusal(NamedTuple):
    """Why a node takes no part, and the UE that it is or was, as far as that is known."""

    ue: int
    why: str


def node_words(node: int, ue: int) -> str:
    """A node by the name that people know, and by Flower's."""
    return f"UE {ue} (node {node})" if ue != NOBODY else f"node {node}"


class Fleet:
    """Who is who: Flower's node numbers are random, so every node is asked which UE it is until it
    has answered.
    """

    def __init__(
        self, ask: Ask, cell: Cell, bound: Mapping[int, int] | None = None, form: Form | None = None
    ) -> None:
        """`bound` says which UE a node's key was registered for; without it the first to claim a
        number keeps it.
        """
        self._ask = ask
        self._cell = cell
        self._bound = dict(bound or {})
        self.num_ue = cell.num_ue
        self._online: set[int] = set()
        self._turn = 0
        self._tries = Counter[int]()
        self._due = dict[int, int]()
        self._refused: list[DeviceRecord] = []
        self._silent: set[int] = set()
        self._failing: set[int] = (
            set()
        )  # nodes whose device met an error of its own instead of saying who it is
        self.refusals: dict[int, Refusal] = {}  # nodes that take no part
        self._ue_of: dict[
            int, int
        ] = {}  # who a node is by its last introduction, if that was accepted
        self._out: set[int] = set()  # nodes that are left out for the rest of the run
        self._has_agreed = False
        self.form = form
        self.known: dict[int, Introduction] = {}

    def gather(self, seconds: float) -> None:
        """Wait until every UE has introduced itself, or this long; then agree on what samples look
        like.

        A device that answers with an error of its own is not waited for: it is asked again while
            the others work.
        """
        end = time.monotonic() + seconds
        self.greet()
        while len(self.known) + len(self.failing) < self._cell.num_ue and time.monotonic() < end:
            time.sleep(LOOK)
            self.greet(self._silent)
        if missing := sorted(set(range(self._cell.num_ue)) - set(self.known)):
            log.warning(
                "UEs %s have not said who they are; they take no part until they do", missing
            )
        if self.known:
            self._agree()

    def greet(self, also: set[int] | None = None) -> None:
        """Ask the nodes that are new, and again, at longer and longer intervals, those that have
        not answered.
        """
        self._turn += 1
        online = self._ask.nodes()
        new = online - self._online
        self._online = online
        again = {
            node
            for node, turn in self._due.items()
            if turn <= self._turn and node not in self._ue_of
        }
        asked = sorted(((new | again | (also or set())) & online) - self._out)
        pixels = MOST_PIXELS if self.form is None else math.prod(self.form.sample_shape)
        expected = Expected(("device", "pixels"), 16 * pixels + 3 * HEADER + SMALL, num_arrays=3)
        answers = self._ask(
            {node: RecordDict() for node in asked}, "query.introduce", "join", expected
        )
        for node in asked:
            try:
                with refusing():
                    self._add(node, answers[node])
            except RefusedError as error:
                self._refuse(node, str(error), self._claimed(answers[node]))
                is_failing = answers[node].problem.startswith(SAYS)
                (self._failing.add if is_failing else self._failing.discard)(node)
                is_silent = answers[node].content is None and not is_failing
                (self._silent.add if is_silent else self._silent.discard)(node)
            else:
                self._failing.discard(node)
                self._silent.discard(node)

    def is_here(self, ue: int) -> bool:
        """Whether it is connected as this UE: a node that comes back as somebody else is no longer
        who it was.
        """
        if ue not in self.known:
            return False
        node = self.known[ue].node
        return node in self._online and self._ue_of.get(node) == ue

    def is_refused(self, ue: int) -> bool:
        """Whether a node that is connected and takes no part is this UE's."""
        return any(one.ue == ue and node in self._online for node, one in self.refusals.items())

    @property
    def failing(self) -> set[int]:
        """Nodes that are connected and cannot say who they are, for an error of their own."""
        return self._failing & self._online

    def await_any(self, ues: Collection[int], seconds: float, watch: Callable[[], None]) -> None:
        """Wait until one of these UEs is connected, or this long."""
        end = time.monotonic() + seconds
        while not any(self.is_here(ue) for ue in ues) and time.monotonic() < end:
            watch()
            time.sleep(min(LOOK, seconds))
            self.greet()

    def refused(self) -> tuple[DeviceRecord, ...]:
        """Devices whose introduction was refused since the last call, and why."""
        records = tuple(self._refused)
        self._refused = []
        return records

    def _claimed(self, answer: Answer) -> int:
        """The UE a node says it is, if nobody else is; used to name it where its key does not tell."""
        content = answer.content if answer.content is not None else RecordDict()
        said = content.config_records.get("device", ConfigRecord()).get("ue")
        return (
            said
            if type(said) is int and 0 <= said < self._cell.num_ue and said not in self.known
            else NOBODY
        )

    def _refuse(self, node: int, why: str, claimed: int) -> None:
        """It takes no part, not even as who it was, and is asked again later."""
        self._tries[node] += 1
        self._due[node] = self._turn + min(2 ** (self._tries[node] - 1), LONGEST_PAUSE)
        self._ue_of.pop(node, None)
        was = next((ue for ue, one in self.known.items() if one.node == node), claimed)
        refusal = Refusal(self._bound.get(node, NOBODY) if self._bound else was, why)
        if self.refusals.get(node) == refusal:
            return  # it was asked again, and nothing has changed
        self.refusals[node] = refusal
        log.warning("%s takes no part: %s", node_words(node, refusal.ue), why)
        self._refused.append(DeviceRecord(refusal.ue, f"introduction: {why}"))

    def _add(self, node: int, answer: Answer) -> None:
        if answer.content is None:
            raise RefusedError(answer.problem)
        one = introduction(node, answer.content, self._cell)
        if not 0 <= one.ue < self._cell.num_ue:
            raise RefusedError(
                f"it calls itself UE {one.ue}; the cell has UEs 0 to {self._cell.num_ue - 1}"
            )
        if self._bound and self._bound.get(node) != one.ue:
            owner = f"UE {self._bound[node]}" if node in self._bound else "no UE of this deployment"
            raise RefusedError(f"it calls itself UE {one.ue}; its key is that of {owner}")
        certified = self._ask.owner(node)
        if certified not in (None, one.ue):
            raise RefusedError(
                f"it calls itself UE {one.ue}; its certificate is that of UE {certified}"
            )
        if self.is_here(one.ue) and self.known[one.ue].node != node:
            raise RefusedError(
                f"it calls itself UE {one.ue}, which node {self.known[one.ue].node} is already"
            )
        if self.form is not None:
            self.form.check(one)
        if self._has_agreed and (why := odd_sizes({**self.known, one.ue: one}).get(one.ue)):
            raise RefusedError(why)
        log.info("UE %d is here: %d samples", one.ue, one.data_size)
        self.known[one.ue] = one
        self._ue_of[node] = one.ue
        self.refusals.pop(node, None)
        self._tries.pop(node, None)

    def _agree(self) -> None:
        """The form of samples, from what most devices say unless it is given; who differs is left
        out.

        Sums of pixels are compared only now, so a device whose sums are refused stays out; the
        others are asked again.
        """
        if self.form is None:
            self.form = common_form(self.known)
        self._has_agreed = True
        self._leave_out(misfits(self.known, self.form))
        sums = odd_sums(self.known)
        sizes = odd_sizes(self.known)
        self._out |= self._leave_out(sums)
        self._leave_out({ue: why for ue, why in sizes.items() if ue not in sums})
        self._out |= self._leave_out(too_many(self.known))

    def _leave_out(self, reasons: Mapping[int, str]) -> set[int]:
        """Their nodes."""
        nodes = {ue: self.known.pop(ue).node for ue in reasons}
        for ue, node in nodes.items():
            self._refuse(node, reasons[ue], ue)
        return set(nodes.values())


def introduction(node: int, content: RecordDict, cell: Cell) -> Introduction:
    """What a device says of itself, checked; values that it knows better must be near those of the
    cell.
    """
    plain = [name for name in FIELDS["device"] if name not in OWN_VALUES]
    said = read(content, "device", plain, OWN_VALUES)
    own = {name: float(said[name]) for name in OWN_VALUES if name in said}
    for name, value in own.items():
        there = np.asarray(getattr(cell, name), dtype=np.float64)
        low = float(there.min()) / OWN_FACTOR
        high = float(there.max()) * OWN_FACTOR
        if not low <= value <= high:
            raise RefusedError(
                f"{name}: {value:g} is not from {low:g} to {high:g}, {OWN_FACTOR:g} times the cell's"
            )
    shape = tuple(said["sample-shape"])
    size = said["data-size"]
    sums = pixels_of(content, shape, size)
    if sums is not None and sums.num != size:
        raise RefusedError(f"pixels: of {sums.num} samples, where it has {size}")
    return Introduction(node, said["ue"], size, said["num-classes"], shape, sums, own)


def common_form(known: Mapping[int, Introduction]) -> Form:
    """The shape and the number of classes that most devices have, separately; in a tie, those of
    the first UE.
    """
    shapes, classes = (
        Counter(getattr(known[ue], name) for ue in sorted(known))
        for name in ("sample_shape", "num_classes")
    )
    return Form(shapes.most_common(1)[0][0], classes.most_common(1)[0][0])


def misfits(known: Mapping[int, Introduction], form: Form) -> dict[int, str]:
    """Devices whose samples have another form."""
    wrong = {}
    for ue, one in known.items():
        try:
            form.check(one)
        except RefusedError as error:
            wrong[ue] = str(error)
    return wrong


def odd_sizes(known: Mapping[int, Introduction]) -> dict[int, str]:
    """Devices that claim far more samples than the others."""
    if len(known) < FEWEST:
        return {}
    middle = float(np.median([one.data_size for one in known.values()]))
    return {
        ue: f"{one.data_size} samples, the median of the devices is {middle:g}"
        for ue, one in known.items()
        if one.data_size > SIZE_FACTOR * middle
    }


def too_many(known: Mapping[int, Introduction]) -> dict[int, str]:
    """Devices whose pixel sums make the total too large, the largest first: one device must not end
    the run.
    """
    sums = {ue: one.sums.num for ue, one in known.items() if one.sums is not None}
    wrong = {}
    num = sum(sums.values())
    for ue in sorted(sums, key=lambda one: (-sums[one], one)):
        if num > MOST_SAMPLES:
            num -= sums[ue]
            wrong[ue] = (
                f"pixels: of {sums[ue]} samples; all sums may have {MOST_SAMPLES} (deploy.statistics=own: any)"
            )
    return wrong


def odd_sums(known: Mapping[int, Introduction]) -> dict[int, str]:
    """Devices whose pixel sums are far from the others': they would distort everybody's
    standardisation.
    """
    sums = {ue: one.sums for ue, one in known.items() if one.sums is not None}
    if len(sums) < FEWEST:
        return {}
    first, second = (
        {ue: float(getattr(part, name).mean()) / part.num for ue, part in sums.items()}
        for name in ("total", "squares")
    )
    wrong = {}
    for values, words in ((first, "mean pixel"), (second, "mean squared pixel")):
        middle = float(np.median(list(values.values())))
        for ue, value in values.items():
            if not middle / PIXEL_FACTOR <= value <= middle * PIXEL_FACTOR and ue not in wrong:
                wrong[ue] = f"pixels: {words} {value:g}, the median of the devices is {middle:g}"
    return wrong


def total_sums(fleet: Mapping[int, Introduction]) -> PixelSums | None:
    """Pixel sums over all devices; whole numbers, so their order does not matter."""
    parts = [one.sums for one in fleet.values() if one.sums is not None]
    if not parts:
        return None
    total, squares = (
        np.sum([getattr(part, name) for part in parts], axis=0) for name in ("total", "squares")
    )
    return PixelSums(sum(part.num for part in parts), total, squares)
