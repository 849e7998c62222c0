"""A quantity of the UEs in a settings file: one number for all, a list, or a law to draw from."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from autofl.channels import Exponential, Fading, NoFading, Rayleigh
from autofl.network import drop_in_disc
from autofl.units import Array

LAWS = {"uniform": 2, "log-uniform": 2, "exponential": 1, "rayleigh": 1, "disc": 1}
"""Laws and the number of their parameters: [low, high] twice, mean, scale, radius."""


@dataclass(frozen=True)
class PerUE:
    """As written: a number, a list of numbers, or {law = parameters}."""

    value: float | tuple[float, ...] | None = None
    law: str | None = None
    parameters: tuple[float, ...] = ()

    @property
    def length(self) -> int | None:
        """How many UEs a list speaks of; None for a number or a law."""
        return len(self.value) if isinstance(self.value, tuple) else None

    def draw(self, rng: np.random.Generator, num_ue: int) -> Array:
        """One value for each UE, shape (num_ue,)."""
        if self.law == "uniform":
            low, high = self.parameters
            return rng.uniform(low, high, num_ue)
        if self.law == "log-uniform":
            low, high = self.parameters
            return np.clip(np.exp(rng.uniform(np.log(low), np.log(high), num_ue)), low, high)
        if self.law == "exponential":
            return rng.exponential(self.parameters[0], num_ue)
        if self.law == "rayleigh":
            return rng.rayleigh(self.parameters[0], num_ue)
        if self.law == "disc":
            x, y = drop_in_disc(rng, num_ue, self.parameters[0]).T
            return np.hypot(x, y)
        return np.broadcast_to(np.asarray(self.value, dtype=np.float64), (num_ue,)).copy()

    def scaled(self, factor: float) -> "PerUE":
        """`factor` times as much for each UE."""
        if self.law is not None:
            return PerUE(
                law=self.law, parameters=tuple(factor * parameter for parameter in self.parameters)
            )
        if isinstance(self.value, tuple):
            return PerUE(value=tuple(factor * value for value in self.value))
        return PerUE(value=None if self.value is None else factor * self.value)

    def as_fading(self) -> Fading:
        """The fading law of a small-scale gain: a law is drawn anew in each round, a number or list
        stays.
        """
        if self.law == "rayleigh":
            return Rayleigh(self.parameters[0])
        if self.law == "exponential":
            return Exponential(self.parameters[0])
        return NoFading(np.asarray(self.value, dtype=np.float64))

    def dump(self) -> Any:
        """As it stands in a TOML file."""
        if self.law is not None:
            return {
                self.law: list(self.parameters) if len(self.parameters) > 1 else self.parameters[0]
            }
        return list(self.value) if isinstance(self.value, tuple) else self.value


@dataclass(frozen=True)
class Bounds:
    """Marks a field as a PerUE within bounds: Annotated[PerUE, Bounds(0, 1e6, laws=("uniform",))]."""

    low: float
    high: float
    laws: tuple[str, ...] = ("uniform", "log-uniform")
    open_low: bool = True  # whether `low` itself is forbidden

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda quantity: quantity.dump()
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """For editors: a number, a list of numbers, or one law with its parameters."""
        number = {
            "type": "number",
            "exclusiveMinimum" if self.open_low else "minimum": self.low,
            "maximum": self.high,
        }
        pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
        laws = [
            {
                "type": "object",
                "properties": {law: number if LAWS[law] == 1 else pair},
                "required": [law],
                "additionalProperties": False,
            }
            for law in self.laws
        ]
        return {"anyOf": [number, {"type": "array", "items": number, "minItems": 1}, *laws]}

    def parse(self, raw: Any) -> PerUE:
        if isinstance(raw, PerUE):
            return raw
        if isinstance(raw, list):
            if not raw:
                raise PydanticCustomError("per_ue", "must not be an empty list")
            return PerUE(value=tuple(self._number(entry) for entry in raw))
        if isinstance(raw, dict):
            return self._law(raw)
        return PerUE(value=self._number(raw))

    def _law(self, raw: dict[str, Any]) -> PerUE:
        wanted = " or ".join(
            f"{{{law} = {'[low, high]' if LAWS[law] == 2 else '...'}}}" for law in self.laws
        )
        if len(raw) != 1 or next(iter(raw)) not in self.laws:
            raise PydanticCustomError(
                "per_ue", "must be a number, a list or {wanted}", {"wanted": wanted}
            )
        law, given = next(iter(raw.items()))
        entries = given if isinstance(given, list) else [given]
        if len(entries) != LAWS[law]:
            raise PydanticCustomError(
                "per_ue", "must be a number, a list or {wanted}", {"wanted": wanted}
            )
        parameters = tuple(self._number(entry) for entry in entries)
        if LAWS[law] == 2 and parameters[0] > parameters[1]:
            raise PydanticCustomError(
                "per_ue", "{law} needs [low, high] with low <= high", {"law": law}
            )
        if law == "log-uniform" and not parameters[0] > 0.0:
            raise PydanticCustomError("per_ue", "log-uniform needs [low, high] with low > 0")
        return PerUE(law=law, parameters=parameters)

    def _number(self, raw: Any) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise PydanticCustomError("per_ue", "must be a number, a list of numbers or a law")
        try:
            number = float(raw)
        except OverflowError:
            number = math.inf
        too_low = number <= self.low if self.open_low else number < self.low
        if not math.isfinite(number) or too_low or number > self.high:
            raise PydanticCustomError(
                "per_ue",
                "{number} is not {sign} {low} and <= {high}",
                {
                    "number": f"{number:g}",
                    "sign": ">" if self.open_low else ">=",
                    "low": f"{self.low:g}",
                    "high": f"{self.high:g}",
                },
            )
        return number
