"""Every field of every message, with its type and range: the one place where what another machine
says is checked.

The same table serves both directions. Unknown, missing and unexpected fields are refused; nothing
is converted, so no text is ever parsed as a number.
"""

import contextlib
import ipaddress
import logging
import math
import re
import string
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import RecordDict

from autofl.deploy.lease import LeftAloneError, TakenOverError

log = logging.getLogger("autofl")

MOST_SAMPLES = 10_000_000
"""Most samples of one device. With bytes as pixels, n sum x^2 and (sum x)^2 then fit into 64 bits.
"""
MOST_CLASSES = 10_000
MOST_EXTENT = 10_000
"""Longest axis of a sample."""
MOST_AXES = 4
MOST_PIXELS = 1_000_000
SMALL = 65_536
"""Bytes of all that travels besides arrays and packed updates."""
STAMP = "stamp"


class RefusedError(Exception):
    """A message that is not used; the text says why.

    It begins with our own words, since `devices.csv` holds it: what a device wrote may stand only
    behind them.
    """


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Whatever goes wrong while one device's reply is read is a refusal of that reply, never the
    end of the run.
    """
    try:
        yield
    except (RefusedError, LeftAloneError, TakenOverError):
        raise
    except Exception as error:  # of bytes from outside; what we have not thought of
        log.debug("a reply could not be read", exc_info=True)
        raise RefusedError(f"a reply that cannot be read ({type(error).__name__})") from error


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    low: int
    high: int

    def allows(self, value: object) -> bool:
        return type(value) is int and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"a whole number from {self.low} to {self.high}"


@dataclass(frozen=True)
class Real:
    """A finite number."""

    low: float
    high: float

    def allows(self, value: object) -> bool:
        return type(value) in (int, float) and self.low <= value <= self.high  # type: ignore[operator]

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Hex:
    """A text of a fixed number of hexadecimal digits."""

    length: int

    def allows(self, value: object) -> bool:
        return (
            isinstance(value, str)
            and len(value) == self.length
            and all(sign in "0123456789abcdef" for sign in value)
        )

    def __str__(self) -> str:
        return f"{self.length} hexadecimal digits"


@dataclass(frozen=True)
class Extents:
    """The shape of a sample."""

    def allows(self, value: object) -> bool:
        return (
            isinstance(value, list)
            and 1 <= len(value) <= MOST_AXES
            and all(type(extent) is int and 1 <= extent <= MOST_EXTENT for extent in value)
            and math.prod(value) <= MOST_PIXELS
        )

    def __str__(self) -> str:
        return f"1 to {MOST_AXES} extents of at most {MOST_EXTENT}, {MOST_PIXELS} pixels in all"


@dataclass(frozen=True)
class Host:
    """The name or address of a machine; an address of IPv6 without brackets."""

    def allows(self, value: object) -> bool:
        if not isinstance(value, str) or not 1 <= len(value) <= 253 or not set(value) <= HOST_SIGNS:
            return False
        return ":" not in value or _is_address(value)

    def __str__(self) -> str:
        return "the name or address of a machine"


@dataclass(frozen=True)
class Word:
    """One of a few words."""

    words: tuple[str, ...]

    def allows(self, value: object) -> bool:
        return isinstance(value, str) and value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


Field = Whole | Real | Hex | Extents | Host | Word
HOST_SIGNS = set(string.ascii_letters + string.digits + ".:-_")

OWN_VALUES: dict[str, Real] = {
    "distance": Real(0.0, 1e6),
    "cycles_per_sample": Real(1.0, 1e12),
    "cpu_frequency": Real(1e3, 1e12),
    "max_energy": Real(0.0, 1e6),
    "max_power": Real(1e-9, 1e4),
    "bandwidth": Real(1.0, 1e12),
}
"""What a device may know better than the settings do; names of `Cell`, SI units."""
OWN_FACTOR = 100.0
"""Factor by which such a value may exceed the cell's largest or fall below its smallest: one UE can
slow all.
"""

FIELDS: dict[str, dict[str, Field]] = {
    STAMP: {"nonce": Hex(32)},
    "device": {
        "ue": Whole(0, 10_000_000),
        "data-size": Whole(1, MOST_SAMPLES),
        "num-classes": Whole(1, MOST_CLASSES),
        "sample-shape": Extents(),
        **OWN_VALUES,
    },
    "order": {
        "round": Whole(1, 10_000_000),
        "ue": Whole(0, 10_000_000),
        "num-samples": Whole(1, MOST_SAMPLES),
        "local-steps": Whole(1, 1000),
        "tx-power": Real(0.0, 1e6),
        "bits-per-weight": Real(0.0, 64.0),
        "compute-time": Real(0.0, 1e7),
        "upload-rate": Real(0.0, 1e15),
    },
    "session": {"host": Host(), "port": Whole(1, 65_535), "token": Hex(32)},
    "ended": {
        "outcome": Word(
            ("over", "unreachable", "untrusted", "no-keys", "bad-keys", "refused", "lost")
        )
    },
    "model": {"num-classes": Whole(1, MOST_CLASSES)},
    "measured": {
        "train-time": Real(0.0, 1e7),
        "energy": Real(0.0, 1e12),
        "guarded": Whole(0, 1000),
        "gain": Real(0.0, 1e6),
    },
    "quality": {
        "train_loss": Real(0.0, 1e9),
        "adapted_train_loss": Real(0.0, 1e9),
        "global_accuracy": Real(0.0, 1.0),
        "adapted_accuracy": Real(0.0, 1.0),
        "adapt_lr": Real(0.0, 1e3),
    },
}
"""By record and name. `packed` and the arrays are checked by what the receiver expects of them, in
`messages`.
"""


def read(
    content: RecordDict, group: str, needed: Collection[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """The fields of a record, each within its range; those that are needed are all there, and no
    others.
    """
    record: Mapping[str, object] = (
        content.config_records.get(group) or content.metric_records.get(group) or {}
    )
    for name in needed:
        if name not in record:
            raise RefusedError(f"{group}: {name} is missing")
    if len(record) > len(needed) + len(optional) or not set(record) <= {*needed, *optional}:
        odd = min(str(name) for name in set(record) - {*needed, *optional})
        raise RefusedError(f"{group}: {shown(odd[:200])} is unknown")
    for name, value in record.items():
        if not FIELDS[group][name].allows(value):
            raise RefusedError(f"{name}: {brief(value)} is not {FIELDS[group][name]}")
    return dict(record)


def check_parts(content: RecordDict, known: Collection[str], most_bytes: float) -> None:
    """Refuse a message with records that nobody asked for, or larger than what was asked for can
    be.
    """
    odd = [name for name in content if name not in known and name != STAMP]
    if odd:
        raise RefusedError(f"an unknown part of a message: {shown(str(min(odd))[:200])}")
    size = size_of(content)
    if size > most_bytes:
        raise RefusedError(f"{size} bytes; it can have {most_bytes:.0f}")


def size_of(record: RecordDict) -> int:
    """Bytes of a message's records."""
    try:
        return sum(part.count_bytes() for part in record.values())
    except Exception as error:  # Flower's own count takes neither an empty text nor an empty list
        raise RefusedError(f"a record that cannot be counted ({shown(str(error)[:200])})") from None


def brief(value: object) -> str:
    """A value from another machine in a few characters, however long it is."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, list):
        return (
            f"a list of {len(value)}"
            if len(value) > 8
            else f"[{', '.join(brief(entry) for entry in value)}]"
        )
    if isinstance(value, str | bytes):
        return f"{len(value)} {'letters' if isinstance(value, str) else 'bytes'}"
    return shown(repr(value)[:200])


SAYS = "it says: "
"""Before what a device wrote of its own; nothing else begins so."""
FRAMED = re.compile(r"error \d+: <class 'autofl\.[\w.]*'>:<'(.*)'>", re.DOTALL)
"""How Flower tells an error of AutoFL; its frame took half of the line that is shown."""


def told(text: str) -> str:
    """What a device wrote of its own, behind words that it cannot choose; an error of AutoFL
    without Flower's frame.
    """
    framed = FRAMED.fullmatch(text)
    text = text if framed is None else framed[1]
    return shown(f"{SAYS}{text}") if shown(text) else "an error without a reason"


def shown(text: str) -> str:
    """One short line, whatever a device wrote."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= 160 else line[:157] + "..."
