"""A section of settings that names a part: `name`, and whatever settings that part has."""

import reprlib
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from autofl.errors import AutoFLError
from autofl.registry import PARTS, Kind, Part, check_name, find


class PartSettings(BaseModel):
    """`name = "exact"` or `name = "module:object"`, and the settings of that part."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)
    kind: ClassVar[Kind]
    from_run: ClassVar[
        tuple[str, ...]
    ] = ()  # settings that come from other sections unless they are given here

    name: str = Field(min_length=1)

    @property
    def given(self) -> dict[str, Any]:
        """The settings of the part that are set."""
        return dict(self.model_extra or {})

    @property
    def part(self) -> Part:
        return find(self.kind, self.name)

    @model_validator(mode="after")
    def _known_settings(self) -> Self:
        if self.model_extra or self.name != type(self).model_fields["name"].default:
            try:
                given = checked_settings(self.part, self.given)
                needed = [key for key, setting in self.part.settings.items() if setting.is_needed]
                if set(needed) <= set(given):
                    self.part.build(given)  # a part checks its own values
            except AutoFLError as error:
                raise PydanticCustomError("part", "{error}", {"error": str(error)}) from None
            assert self.__pydantic_extra__ is not None
            self.__pydantic_extra__.update(given)
        return self

    def build(self, **context: Any) -> Any:
        """The part; what it needs and is not set comes from the context."""
        return self.part.build(self.given, context)

    def resolved(self) -> Self:
        """The same with the defaults of the part written out, as far as they are plain values."""
        plain = {
            key: setting.default
            for key, setting in self.part.settings.items()
            if isinstance(setting.default, bool | int | float | str) and key not in self.from_run
        }
        return self.model_copy(update={**plain, **self.given})


def checked_settings(part: Part, given: dict[str, Any]) -> dict[str, Any]:
    """Settings of a part with names, types and ranges checked; an AutoFLError of one line where
    something is wrong.
    """
    typed = {key: _typed(part, key, value) for key, value in given.items() if key in part.settings}
    part.check(given | typed)
    return typed


def _typed(part: Part, key: str, value: Any) -> Any:
    """A value in the type of its setting."""
    try:
        return TypeAdapter(part.settings[key].type, config=AS_WRITTEN).validate_python(value)
    except ValidationError as error:
        words = error.errors()[0]["msg"].replace("Input should", "must")
        raise AutoFLError(
            f"{part.kind} {part.name}: {key}: {words} (got {reprlib.repr(value)})"
        ) from None


AS_WRITTEN = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
"""A number in quotes is no number."""
PLANNER_FROM_RUN = ("pace", "rates", "least_samples", "most_samples")
"""Settings of a planner that data and compressor give it."""


class PlannerSettings(PartSettings):
    """Who decides for the UEs.

    It may hold settings for the planners of other arms: those of a comparison share their settings.
    """

    kind = "planner"
    from_run = PLANNER_FROM_RUN
    name: str = Field("paper", min_length=1, description=f"one of {', '.join(PARTS['planner'])}")

    @property
    def given(self) -> dict[str, Any]:
        extra = self.model_extra or {}
        return {key: value for key, value in extra.items() if key in self.part.settings}

    @property
    def foreign(self) -> list[str]:
        """The settings that this planner lacks."""
        return [key for key in self.model_extra or {} if key not in self.part.settings]

    def resolved(self) -> Self:
        resolved = super().resolved()
        for key in self.foreign:
            del (resolved.model_extra or {})[key]
        return resolved


class ChannelSettings(PartSettings):
    """Where channel gains come from."""

    kind = "channel"
    from_run = ("landscape",)
    name: str = Field("path-loss", min_length=1, description="where channel gains come from")


class LinkSettings(PartSettings):
    """From SNR to rate, and what happens where the rate was too high."""

    kind = "link"
    name: str = Field("shannon", min_length=1, description=f"rate law: {', '.join(PARTS['link'])}")
    tries: int = Field(
        1,
        ge=1,
        le=1000,
        description="most transmissions of an update, combined by the receiver; 1: none is repeated",
    )


class SelectionSettings(PartSettings):
    """Who takes part in a round."""

    kind = "selection"
    from_run = ("num_selected",)
    name: str = Field("uniform", min_length=1, description="who takes part in a round")


class OptionalPartSettings(PartSettings):
    """A part that may be missing: `name = "none"`."""

    name: str = Field("none", min_length=1)

    @model_validator(mode="after")
    def _known_settings(self) -> Self:
        if self.name == "none":
            if self.given:
                key = next(iter(self.given))
                said = {"kind": self.kind, "key": key}
                raise PydanticCustomError(
                    "part", "{kind} none: unknown setting '{key}'; it has none", said
                )
            return self
        return super()._known_settings()  # type: ignore[operator]

    def resolved(self) -> Self:
        return self if self.name == "none" else super().resolved()


class CompressorSettings(OptionalPartSettings):
    """How an update is compressed on its way up."""

    kind = "compressor"
    name: str = Field(
        "none", min_length=1, description="how an update is compressed; none: 32 bits per weight"
    )


class DownlinkSettings(CompressorSettings):
    """How the model is compressed on its way down."""

    name: str = Field(
        "none",
        min_length=1,
        description="how the model is compressed on its way down; none: not at all",
    )

    @property
    def is_open(self) -> bool:
        """Whether somebody may decide its bits: they are not set, and it says what they would lose."""
        return (
            self.name != "none" and "bits" not in self.given and hasattr(self.part.target, "losses")
        )


class AttackSettings(OptionalPartSettings):
    """UEs that lie, in a simulation."""

    kind = "attack"
    name: str = Field(
        "none", min_length=1, description="what lying UEs send, in simulations; none: nobody lies"
    )
    share: float = Field(0.2, ge=0, le=1, description="share of the UEs that lie, drawn once")
    begin: int = Field(1, ge=1, description="round from which on they lie; before, they are honest")

    @model_validator(mode="after")
    def _begins_in_time(self) -> Self:
        if self.name != "none" and self.begin > 1 and hasattr(self.part.target, "labels"):
            raise PydanticCustomError(
                "begin", "begin: a lie in the training data begins in round 1; leave it out"
            )
        return self


class AggregatorSettings(PartSettings):
    """What the server makes of the updates."""

    kind = "aggregator"
    name: str = Field(
        "mean", min_length=1, description="how the server combines the updates that arrived"
    )

    def resolved(self) -> Self:
        return self  # its module loads PyTorch, which planning must not


class ModelSettings(PartSettings):
    """The model that is learned."""

    kind = "model"
    name: str = Field(
        "auto",
        min_length=1,
        description='auto: lenet5 for CIFAR-10, else mlp; your own: "module:object"',
    )

    @model_validator(mode="after")
    def _known_settings(self) -> Self:
        """Its module loads PyTorch, which planning must not: imported here only for settings of its
        own.
        """
        try:
            if self.name == "auto" and self.given:
                key = next(iter(self.given))
                raise AutoFLError(
                    f"model auto: unknown setting {key!r}; name a model to set its own"
                )
            check_name(self.kind, self.name, also=("auto",))
            if self.given:
                checked_settings(self.part, self.given)
        except AutoFLError as error:
            raise PydanticCustomError("part", "{error}", {"error": str(error)}) from None
        return self

    def resolved(self) -> Self:
        return self


SECTIONS: dict[str, type[PartSettings]] = {
    "channel": ChannelSettings,
    "link": LinkSettings,
    "selection": SelectionSettings,
    "planner": PlannerSettings,
    "compressor": CompressorSettings,
    "downlink": DownlinkSettings,
    "aggregator": AggregatorSettings,
    "attack": AttackSettings,
    "model": ModelSettings,
}
"""The sections of settings that name a part."""
