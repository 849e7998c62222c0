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
from autofl.deploy.arrays import HEADER, pixels_of
from autofl.deploy.messages import (
    MOST_PIXELS,
    MOST_SAMPLES,
    SAYS,
    SMALL,
    Form,
    Introduction,
    RefusedError,
)
from autofl.deploy.post import Answer, Ask, Expected
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
OWN_FACTOR = 100.0
"""Factor by which a value of its own may exceed the cell's largest or fall below its smallest: one
UE can slow all.
"""
PIXEL_FACTOR = 5.0
"""How far its mean pixel, and its mean squared pixel, may lie from the median of the devices."""


@dataclass(frozen=True, eq=False)
class Known:
    """A device that has introduced itself."""

    node: int  # Flower's number, new with every registration
    said: Introduction
    sums: PixelSums | None = None


class Refusal(NamedTuple):
    """Why a node takes no part for now."""

    ue: int  # that it is or was, as far as that is known
    why: str
    is_silent: bool  # it did not answer
    due: int  # the turn in which it is asked again
    tries: int

    @property
    def is_failing(self) -> bool:
        """Whether it answered with an error of its own."""
        return self.why.startswith(SAYS)


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
        self.form = form
        self.known: dict[int, Known] = {}  # by UE
        self.refusals: dict[int, Refusal] = {}  # nodes that take no part
        self._has_agreed = False
        self._online: set[int] = set()
        self._ue_of: dict[int, int] = {}  # who a node is, if its last introduction was accepted
        self._out: set[int] = set()  # nodes that are left out for the rest of the run
        self._turn = 0
        self._news: list[DeviceRecord] = []  # refusals since the last call of `refused`

    def gather(self, seconds: float) -> None:
        """Wait until every UE has introduced itself, or this long; then agree on what samples look
        like.

        A device that answers with an error of its own is not waited for: it is asked again while
        the others work.
        """
        end = time.monotonic() + seconds
        self.greet()
        while len(self.known) + len(self.failing) < self.num_ue and time.monotonic() < end:
            time.sleep(LOOK)
            self.greet({node for node, one in self.refusals.items() if one.is_silent})
        if missing := sorted(set(range(self.num_ue)) - set(self.known)):
            log.warning(
                "UEs %s have not said who they are; they take no part until they do", missing
            )
        if self.known:
            self._agree()

    def greet(self, also: Collection[int] = ()) -> None:
        """Ask the nodes that are new, and again, at longer and longer intervals, those that have
        not answered.
        """
        self._turn += 1
        online = self._ask.nodes()
        new = online - self._online
        self._online = online
        again = {node for node, one in self.refusals.items() if one.due <= self._turn}
        asked = sorted((new.union(again, also) & online) - self._out)

        # Of what UE a node is that is refused, only its own words may tell.
        claims: dict[int, object] = {}

        def read(node: int, content: RecordDict) -> Known:
            said = content.config_records.get(Introduction.part, ConfigRecord())
            claims[node] = said.get("ue")
            return introduced(node, content, self._cell)

        pixels = MOST_PIXELS if self.form is None else math.prod(self.form.sample_shape)
        most_bytes = 16 * pixels + 3 * HEADER + SMALL
        expected = Expected((Introduction.part, "pixels"), read, most_bytes)
        contents = {node: RecordDict() for node in asked}
        answers = self._ask(contents, "query.introduce", "join", expected)

        # In the order of their numbers: of two that claim one UE the first keeps it.
        for node in asked:
            try:
                self._add(answers[node])
            except RefusedError as error:
                is_silent = node not in claims and not str(error).startswith(SAYS)
                self._refuse(node, str(error), claims.get(node), is_silent)

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
        return {
            node for node in self._online & self.refusals.keys() if self.refusals[node].is_failing
        }

    def await_any(self, ues: Collection[int], seconds: float, watch: Callable[[], None]) -> None:
        """Wait until one of these UEs is connected, or this long."""
        end = time.monotonic() + seconds
        while not any(self.is_here(ue) for ue in ues) and time.monotonic() < end:
            watch()
            time.sleep(min(LOOK, seconds))
            self.greet()

    def ask(
        self, contents: Mapping[int, RecordDict], kind: str, group: str, expected: Expected
    ) -> dict[int, Answer]:
        """Ask UEs by their numbers; the reader is told these too."""
        ue_of = {self.known[ue].node: ue for ue in contents}
        by_node = expected._replace(read=lambda node, content: expected.read(ue_of[node], content))
        of_nodes = {node: contents[ue] for node, ue in ue_of.items()}
        answers = self._ask(of_nodes, kind, group, by_node)
        return {ue: answers[node] for node, ue in ue_of.items()}

    def way(self, ue: int) -> str:
        """How a device that is known is asked, in words."""
        return self._ask.way(self.known[ue].node)

    def refused(self) -> tuple[DeviceRecord, ...]:
        """Devices whose introduction was refused since the last call, and why."""
        records = tuple(self._news)
        self._news = []
        return records

    def _refuse(self, node: int, why: str, claimed: object, is_silent: bool = False) -> None:
        """It takes no part, not even as who it was, and is asked again later."""
        before = self.refusals.get(node)
        tries = 1 if before is None else before.tries + 1
        due = self._turn + min(2 ** (tries - 1), LONGEST_PAUSE)
        ue = self._named(node, claimed)
        self._ue_of.pop(node, None)
        self.refusals[node] = Refusal(ue, why, is_silent, due, tries)
        if before is None or (before.ue, before.why) != (ue, why):  # else nothing has changed
            log.warning("%s takes no part: %s", node_words(node, ue), why)
            self._news.append(DeviceRecord(ue, f"introduction: {why}"))

    def _named(self, node: int, claimed: object) -> int:
        """The UE by whose name a refused node is called: its key's, or the one that it was, or the
        one that it claims to be, if nobody else is.
        """
        if self._bound:
            return self._bound.get(node, NOBODY)
        for ue, one in self.known.items():
            if one.node == node:
                return ue
        is_free = type(claimed) is int and 0 <= claimed < self.num_ue and claimed not in self.known
        return claimed if is_free else NOBODY  # type: ignore[return-value]

    def _add(self, answer: Answer) -> None:
        """Take a node for the UE that it says it is, or refuse it."""
        if answer.problem:
            raise RefusedError(answer.problem)
        one: Known = answer.value
        node = one.node
        ue = one.said.ue

        # Its number must be one of the cell's, its key's and its certificate's, and nobody else's.
        calls_itself = f"it calls itself UE {ue}"
        if ue >= self.num_ue:
            raise RefusedError(f"{calls_itself}; the cell has UEs 0 to {self.num_ue - 1}")
        if self._bound and self._bound.get(node) != ue:
            owner = f"UE {self._bound[node]}" if node in self._bound else "no UE of this deployment"
            raise RefusedError(f"{calls_itself}; its key is that of {owner}")
        certified = self._ask.owner(node)
        if certified not in (None, ue):
            raise RefusedError(f"{calls_itself}; its certificate is that of UE {certified}")
        if self.is_here(ue) and self.known[ue].node != node:
            raise RefusedError(f"{calls_itself}, which node {self.known[ue].node} is already")

        # Its samples must be like those of the others, as far as they have agreed.
        if self.form is not None:
            self.form.check(one.said)
        if self._has_agreed and (why := odd_sizes({**self.known, ue: one}).get(ue)):
            raise RefusedError(why)
        log.info("UE %d is here: %d samples", ue, one.said.data_size)
        self.known[ue] = one
        self._ue_of[node] = ue
        self.refusals.pop(node, None)

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


def introduced(node: int, content: RecordDict, cell: Cell) -> Known:
    """What a device says of itself, checked; values that it knows better must be near those of the
    cell.
    """
    said = Introduction.of(content)
    for name, value in said.own.items():
        there = np.asarray(getattr(cell, name), dtype=np.float64)
        low = float(there.min()) / OWN_FACTOR
        high = float(there.max()) * OWN_FACTOR
        if not low <= value <= high:
            raise RefusedError(
                f"{name}: {value:g} is not from {low:g} to {high:g}, {OWN_FACTOR:g} times the cell's"
            )
    sums = pixels_of(content, said.sample_shape, said.data_size)
    if sums is not None and sums.num != said.data_size:
        raise RefusedError(f"pixels: of {sums.num} samples, where it has {said.data_size}")
    return Known(node, said, sums)


def common_form(known: Mapping[int, Known]) -> Form:
    """The shape and the number of classes that most devices have, separately; in a tie, those of
    the first UE.
    """
    said = [known[ue].said for ue in sorted(known)]
    shapes = Counter(one.sample_shape for one in said)
    classes = Counter(one.num_classes for one in said)
    return Form(sample_shape=shapes.most_common(1)[0][0], num_classes=classes.most_common(1)[0][0])


def misfits(known: Mapping[int, Known], form: Form) -> dict[int, str]:
    """Devices whose samples have another form."""
    wrong = {}
    for ue, one in known.items():
        try:
            form.check(one.said)
        except RefusedError as error:
            wrong[ue] = str(error)
    return wrong


def odd_sizes(known: Mapping[int, Known]) -> dict[int, str]:
    """Devices that claim far more samples than the others."""
    if len(known) < FEWEST:
        return {}
    sizes = {ue: one.said.data_size for ue, one in known.items()}
    middle = float(np.median(list(sizes.values())))
    return {
        ue: f"{size} samples, the median of the devices is {middle:g}"
        for ue, size in sizes.items()
        if size > SIZE_FACTOR * middle
    }


def sums_of_all(known: Mapping[int, Known]) -> dict[int, PixelSums]:
    """The pixel sums of the devices that gave some."""
    return {ue: one.sums for ue, one in known.items() if one.sums is not None}


def too_many(known: Mapping[int, Known]) -> dict[int, str]:
    """Devices whose pixel sums make the total too large, the largest first: one device must not end
    the run.
    """
    sizes = {ue: sums.num for ue, sums in sums_of_all(known).items()}
    wrong = {}
    num = sum(sizes.values())
    for ue in sorted(sizes, key=lambda one: (-sizes[one], one)):
        if num > MOST_SAMPLES:
            num -= sizes[ue]
            wrong[ue] = (
                f"pixels: of {sizes[ue]} samples; all sums may have {MOST_SAMPLES}"
                " (deploy.statistics=own: any)"
            )
    return wrong


def odd_sums(known: Mapping[int, Known]) -> dict[int, str]:
    """Devices whose pixel sums are far from the others': they would distort everybody's
    standardisation.
    """
    sums = sums_of_all(known)
    if len(sums) < FEWEST:
        return {}
    wrong: dict[int, str] = {}
    for name, words in (("squares", "mean squared pixel"), ("total", "mean pixel")):
        means = {ue: float(getattr(one, name).mean()) / one.num for ue, one in sums.items()}
        middle = float(np.median(list(means.values())))
        for ue, mean in means.items():
            if not middle / PIXEL_FACTOR <= mean <= middle * PIXEL_FACTOR:
                wrong[ue] = f"pixels: {words} {mean:g}, the median of the devices is {middle:g}"
    return wrong


def total_sums(known: Mapping[int, Known]) -> PixelSums | None:
    """Pixel sums over all devices; whole numbers, so their order does not matter."""
    parts = list(sums_of_all(known).values())
    if not parts:
        return None
    total = np.sum([part.total for part in parts], axis=0)
    squares = np.sum([part.squares for part in parts], axis=0)
    return PixelSums(sum(part.num for part in parts), total, squares)
