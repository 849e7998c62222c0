"""What travels between server and devices besides arrays: every field, with its range.

Down: {"params", "order", "model"} and, where pixels are standardised by all devices' statistics,
{"pixels"}. Up: {"params", "measured"}, with a compressor {"packed", "measured"}, {"quality"} or
{"device"}. Each message has a stamp that its reply repeats. Nothing is converted, so no text is ever
parsed as a number; `arrays` checks the arrays.
"""

import contextlib
import ipaddress
import logging
import math
import re
import reprlib
from collections.abc import Collection, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from flwr.app import ConfigRecord, RecordDict
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

log = logging.getLogger("autofl")

MOST_SAMPLES = 10_000_000
"""Most samples of one device. With bytes as pixels, n sum x^2 and (sum x)^2 then fit into 64 bits.
"""
MOST_PIXELS = 1_000_000
MOST_ROUNDS = 10_000_000
MOST_UE = 10_000_000
LONGEST = 1e7
"""Most seconds of anything."""
SMALL = 65_536
"""Bytes of all that travels besides arrays and packed updates."""


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
    except RefusedError:
        raise
    except Exception as error:  # of bytes from outside; what we have not thought of
        log.debug("a reply could not be read", exc_info=True)
        raise RefusedError(f"a reply that cannot be read ({type(error).__name__})") from error


class Record(BaseModel):
    """A part of a message. Unknown and missing fields and values out of range are refused by who
    reads it; who writes one makes it by `saying`, since the other side judges.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    part: ClassVar[str]

    @classmethod
    def saying(cls, **values: Any) -> Self:
        return cast(Self, cls.model_construct(**values))

    def written(self) -> ConfigRecord:
        return ConfigRecord(self.model_dump(mode="json", exclude_none=True))

    @classmethod
    def of(cls, content: RecordDict) -> Self:
        try:
            return cls.model_validate(dict(content.get(cls.part, {})))
        except ValidationError as error:
            raise RefusedError(_words(cls.part, error)) from None


def _words(part: str, error: ValidationError) -> str:
    """The first thing that is wrong, in a line; a value from another machine in a few characters."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(name)[:200] for name in first["loc"])
    if first["type"] == "missing":
        return f"{part}: {field} is missing"
    if first["type"] == "extra_forbidden":
        return f"{part}: {shown(field)} is unknown"
    rule = first["msg"].replace("Input", "it", 1)
    return shown(f"{field}: {reprlib.repr(first['input'])}; {rule}")


def _small_enough(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > MOST_PIXELS:
        raise ValueError(f"{MOST_PIXELS} pixels at most")
    return shape


def checked_host(text: str) -> str:
    """The name or address of a machine; an address of IPv6 without brackets."""
    if ":" in text:
        ipaddress.IPv6Address(text)
    elif not re.fullmatch(r"[\w.-]{1,253}", text, re.ASCII):
        raise ValueError("not the name or address of a machine")
    return text


Digits = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Extent = Annotated[int, Field(ge=1, le=10_000)]


class Stamp(Record):
    """What a reply repeats, so that it is the reply to this very message."""

    part = "stamp"
    nonce: Digits


class Form(Record):
    """What the samples of a run look like. It comes from the server, or from what most devices say
    at the start.
    """

    part = "model"
    sample_shape: Annotated[tuple[Extent, ...], AfterValidator(_small_enough)] = Field(
        min_length=1, max_length=4, strict=False
    )
    num_classes: int = Field(ge=1, le=10_000)

    def check(self, one: "Form") -> None:
        """Refuse samples that do not fit."""
        if one.sample_shape != self.sample_shape:
            raise RefusedError(f"samples of shape {one.sample_shape}, not {self.sample_shape}")
        if one.num_classes > self.num_classes:
            raise RefusedError(
                f"{one.num_classes} classes, not {self.num_classes}; to begin a run for all of them, set"
                f" deploy.sample_shape={list(one.sample_shape)} and deploy.num_classes={one.num_classes}"
            )


class Introduction(Form):
    """What a device says of itself when it is first asked."""

    part = "device"
    ue: int = Field(ge=0, le=MOST_UE)
    data_size: int = Field(ge=1, le=MOST_SAMPLES)
    distance: float | None = Field(None, ge=0.0, le=1e6)
    cycles_per_sample: float | None = Field(None, ge=1.0, le=1e12)
    cpu_frequency: float | None = Field(None, ge=1e3, le=1e12)
    max_energy: float | None = Field(None, ge=0.0, le=1e6)
    max_power: float | None = Field(None, ge=1e-9, le=1e4)
    bandwidth: float | None = Field(None, ge=1.0, le=1e12)

    @property
    def own(self) -> dict[str, float]:
        """What it knows better than the settings do."""
        return self.model_dump(include=set(OWN_VALUES), exclude_none=True)


OWN_VALUES = tuple(
    name for name, field in Introduction.model_fields.items() if not field.is_required()
)
"""What a device may know better than the settings do; names of `Cell`, SI units."""


class Order(Record):
    """What one device is told in a round: its part of the plan, as far as it can act on it."""

    part = "order"
    round: int = Field(ge=1, le=MOST_ROUNDS)
    ue: int = Field(ge=0, le=MOST_UE)  # whom it is for
    num_samples: int = Field(ge=1, le=MOST_SAMPLES)  # d_k^i
    local_steps: int = Field(ge=1, le=1000)  # tau_k^i
    tx_power: float = Field(ge=0.0, le=1e6)  # p_k^i [W], for a device that can set it
    bits_per_weight: float = Field(ge=0.0, le=64.0)  # of the update it sends
    compute_time: float = Field(ge=0.0, le=LONGEST)  # [s] and
    upload_rate: float = Field(ge=0.0, le=1e15)  # [bit/s] as modelled, for a device on a testbed


class Trained(Record):
    """What a device measured while it computed its update."""

    part = "measured"
    train_time: float = Field(ge=0.0, le=LONGEST)
    energy: float | None = Field(None, ge=0.0, le=1e12)
    guarded: int = Field(ge=0, le=1000)


class Gain(Record):
    """The channel as a device measures it."""

    part = "channel"
    gain: float = Field(ge=0.0, le=1e6)


class Judged(Record):
    """A model on a device's own samples; names of `Evaluation`."""

    part = "quality"
    train_loss: float = Field(ge=0.0, le=1e9)
    adapted_train_loss: float = Field(ge=0.0, le=1e9)
    global_accuracy: float = Field(ge=0.0, le=1.0)
    adapted_accuracy: float = Field(ge=0.0, le=1.0)
    adapt_lr: float = Field(ge=0.0, le=1e3)


class Session(Record):
    """Where a device opens its stream."""

    part = "session"
    host: Annotated[str, AfterValidator(checked_host)]
    port: int = Field(ge=1, le=65_535)
    token: Digits


class Ended(Record):
    """How a session ended."""

    part = "ended"
    outcome: Literal["over", "unreachable", "untrusted", "no-keys", "bad-keys", "refused", "lost"]


def check_parts(content: RecordDict, known: Collection[str], most_bytes: float) -> None:
    """Refuse a message with records that nobody asked for, or larger than what was asked for can
    be.
    """
    odd = [str(name) for name in content if name not in known and name != Stamp.part]
    if odd:
        raise RefusedError(f"an unknown part of a message: {shown(min(odd)[:200])}")
    size = size_of(content)
    if size > most_bytes:
        raise RefusedError(f"{size} bytes; it can have {most_bytes:.0f}")


def size_of(content: RecordDict) -> int:
    """Bytes of a message's records."""
    try:
        return sum(part.count_bytes() for part in content.values())
    except Exception as error:  # Flower's own count takes neither an empty text nor an empty list
        raise RefusedError(f"a record that cannot be counted ({shown(str(error)[:200])})") from None


SAYS = "it says: "
"""Before what a device wrote of its own; nothing else begins so."""
FRAMED = re.compile(r"error \d+: <class 'autofl\.[\w.]*'>:<'(.*)'>", re.DOTALL)
"""How Flower tells an error of AutoFL; its frame took half of the line that is shown."""


def told(text: str) -> str:
    """What a device wrote of its own, behind words that it cannot choose; an error of AutoFL
    without Flower's frame.
    """
    framed = FRAMED.fullmatch(text)
    if framed is not None:
        text = framed[1]
    return shown(f"{SAYS}{text}") if shown(text) else "an error without a reason"


def shown(text: str) -> str:
    """One short line, whatever a device wrote."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= 160 else line[:157] + "..."
