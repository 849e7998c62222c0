"""What the signature of a part says of its settings: type, default, meaning and range.

A range is written once, where the parameter is declared, and read here alone. The check, its one
line, the JSON schema, the list of parts and the sliders of `autofl explore` all come from it.

    @dataclass(frozen=True)
    class TopK(Checked):
        share: Annotated[float, Range(gt=0, le=1), "share of the weights that are sent"] = 0.05

    TopK(share=2.0)  # AutoFLError: TopK: share: must be > 0 and <= 1 (got 2.0)
"""

import inspect
import math
import reprlib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType, NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError

NOT_SET = inspect.Parameter.empty


@dataclass(frozen=True)
class Range:
    """Which numbers a setting may be; of a list or an array, each of its numbers.

    NaN is never in a range, and infinity only if `finite` is false.
    """

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    finite: bool = True

    def __str__(self) -> str:
        if self.ge is not None and self.le is not None:
            return f"from {_text(self.ge)} to {_text(self.le)}"
        bounds = {">": self.gt, ">=": self.ge, "<": self.lt, "<=": self.le}
        said = [f"{sign} {_text(bound)}" for sign, bound in bounds.items() if bound is not None]
        return " and ".join(said) or "a finite number"

    def __contains__(self, value: object) -> bool:
        low: Any
        high: Any
        if type(value) in (int, float):
            low = high = value  # most are one number, which needs no array
        else:
            array = _numbers(value)
            if array is None or array.size == 0:
                return array is not None
            low = array.min()  # NaN if there is one
            high = array.max()
        return bool(
            (-math.inf < low and high < math.inf if self.finite else low == low)
            and (self.gt is None or low > self.gt)
            and (self.ge is None or low >= self.ge)
            and (self.lt is None or high < self.lt)
            and (self.le is None or high <= self.le)
        )

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The lowest and the highest number, or what numbers must lie between; None for no bound."""
        return self.ge if self.gt is None else self.gt, self.le if self.lt is None else self.lt

    def culprit(self, value: object) -> object:
        """What to show of a value that is not in the range: the first such number of many."""
        array = _numbers(value)
        if array is None or array.ndim == 0:
            return value
        return next(number for number in array.ravel().tolist() if number not in self)


def _numbers(value: object) -> NDArray[Any] | None:
    """The numbers of a value; None if it holds anything else."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal length
        return None
    return array if array.dtype.kind in "iuf" else None


def _text(bound: float) -> str:
    return f"{bound:g}" if isinstance(bound, float) else f"{bound:,}"


@dataclass(frozen=True)
class Setting:
    """A parameter of a part; its default is `NOT_SET` if it has none."""

    type: Any
    default: Any
    meaning: str
    range: Range | None
    choices: tuple[Any, ...]  # of a Literal
    may_be_none: bool

    @property
    def is_needed(self) -> bool:
        return self.default is NOT_SET

    def refusal(self, value: Any) -> str:
        """What a value must be and is not, for example "must be > 0"; empty if it may stand."""
        if value is self.default or (value is None and self.may_be_none):
            return ""
        if self.range is not None and value not in self.range:
            return f"must be {self.range}"
        if self.choices and value not in self.choices:
            *others, last = map(repr, self.choices)
            return f"must be {', '.join(others)} or {last}"
        return ""


@lru_cache(maxsize=1024)
def settings_of(target: Any) -> Mapping[str, Setting]:
    """The parameters of a class or a function by name, as its signature and its hints say."""
    function = target.__init__ if inspect.isclass(target) else target
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # a hint that cannot be resolved says nothing
        hints = {}
    settings = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = hints.get(name, Any)
        notes = getattr(hint, "__metadata__", ())
        bare = typing.get_args(hint)[0] if notes else hint
        settings[name] = Setting(
            type=hint,
            default=parameter.default,
            meaning=next((note for note in notes if isinstance(note, str)), ""),
            range=next((note for note in notes if isinstance(note, Range)), None),
            choices=typing.get_args(bare) if typing.get_origin(bare) is typing.Literal else (),
            may_be_none=NoneType in typing.get_args(bare),
        )
    return MappingProxyType(settings)


def check(owner: str, settings: Mapping[str, Setting], given: Mapping[str, Any]) -> None:
    """Refuse the first value that is out of its range, in one line."""
    for name, value in given.items():
        if refusal := settings[name].refusal(value):
            allowed = settings[name].range
            got = value if allowed is None else allowed.culprit(value)
            raise AutoFLError(f"{owner}: {name}: {refusal} (got {reprlib.repr(got)})")


class Checked:
    """A dataclass whose fields are checked as it is made, against what it declares of them."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        settings = settings_of(kind)
        there = {name: getattr(self, name) for name in settings if hasattr(self, name)}
        check(kind.__name__, settings, there)
