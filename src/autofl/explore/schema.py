"""What is asked and answered, for validation and for the OpenAPI description. All values are SI and
linear.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

RunId = Annotated[
    str, Field(pattern="^[0-9a-f]{16}$", description="of a run, as /api/runs lists it")
]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Za-z0-9_-]+$")]
Wish = Literal["pause", "stop", "resume"]
Target = Annotated[float, Field(gt=0, le=1, description="adapted accuracy, 0 to 1")]


class Question(BaseModel):
    """Settings: a scenario, and on top of it sections as in a TOML file."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    scenario: Name = Field("paper", description="one of /api/about")
    file: str | None = Field(
        None,
        max_length=2**20,
        description="text of a settings file (TOML), in place of the scenario",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="sections and keys as `autofl list settings` prints them; no files or own parts",
    )


class PlanQuestion(Question):
    digits: Annotated[int, Field(ge=3, le=17)] | None = Field(
        None,
        description="significant digits of values of UEs, and places in whole millimetres; null: as computed",
    )


class CurveQuestion(Question):
    over: Literal["energy", "radius", "selected"] = Field(
        "energy", description="what changes along the curve"
    )
    target: Target | None = Field(None, description="for time to accuracy over |A_k|")


class ForecastQuestion(Question):
    target: Target = 0.85


class StartQuestion(Question):
    rounds: Annotated[int, Field(ge=1, le=100_000)] = 100
    every: Annotated[int, Field(ge=1, le=1000, description="rounds between evaluations")] = 2


class CompareQuestion(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    runs: Annotated[list[RunId], Field(min_length=1, max_length=60)]
    target: Target = 0.85


class Problem(BaseModel):
    """What is wrong and what to do, in one line."""

    detail: str


class PlannedUEs(BaseModel):
    """The UEs of a planned round: under each key of `autofl plan --json` the values of all UEs, in
    their order.
    """

    model_config = ConfigDict(extra="allow")

    id: list[int]
    distance: list[float]
    channel_gain: list[float]
    num_samples: list[int]
    tx_power: list[float]
    snr: list[float]
    upload_time: list[float]
    compute_time: list[float]
    energy: list[float]
    status: list[str]
    samples_limit: list[str]
    power_limit: list[str]
    infeasible_because: list[str | None]
    success_probability: list[float | None]


class Plan(BaseModel):
    """What `autofl plan --json` prints, but with a list for each quantity in place of a table for
    each UE.
    """

    planner: str
    algorithm: str
    round_time: float
    planned_time: float = Field(
        description="[s], if every update arrives at its first transmission"
    )
    downlink_time: float
    downlink_bits: float = Field(description="bits per weight of the message down")
    downlink: dict[str, float] | None = Field(
        None, description="that message, where its bits are decided, and why"
    )
    overhead: float
    num_feasible: int
    energy: float
    certificate: dict[str, float | None] | None
    ues: PlannedUEs


class PlanAnswer(BaseModel):
    plan: Plan
    positions: list[tuple[float, float]] = Field(
        description="x, y [m]; the base station is at (0, 0)"
    )
    compute_energy: list[float] = Field(
        description="[J] of each UE; the rest of its energy goes into sending"
    )
    max_power: list[float] = Field(description="P_max [W] of each UE")
    slowest: int | None = Field(description="the UE that ends the round")
    values: dict[str, float | int | None] = Field(description="values of the sliders")
    ranges: dict[str, tuple[float | None, float | None]] = Field(
        description="least and most of the sliders that set the planner's own settings"
    )
    most_ue: int = Field(description="most UEs that are planned here")
    all_asked: bool = Field(
        description="whether the planner chooses among all UEs: their number is not set"
    )
    decisions: list[tuple[str, str, str]] = Field(
        description="what is decided beyond single UEs, its value, and why"
    )
    decided: list[str] = Field(
        description="sliders without effect, since the planner decides these itself"
    )
    host_time: float = Field(description="seconds that planning took here")


class CurveAnswer(BaseModel):
    over: str
    unit: str
    x: list[float]
    here: float | None = Field(description="the value in the settings")
    round_time: list[float | None] = Field(description="[s]")
    energy: list[float | None] = Field(description="[J] of all UEs in a round")
    feasible: list[float | None] = Field(
        description="UEs that take part; null where the settings are refused"
    )
    refused: str | None = Field(
        description="why the first of these points is refused; null if none is"
    )
    time_to_target: list[float | None] = Field(
        description="[s]; null without pilots of the learning problem"
    )


class RunRow(BaseModel):
    """A run in a list."""

    id: str
    name: str
    label: str
    seed: int | None
    status: str = Field(
        description="starting, running, stopping, paused, stopped, finished, interrupted, failed or damaged"
    )
    problem: str | None
    rounds: int | None
    planned_rounds: int | None
    own: bool = Field(description="whether this server started it and may stop it")
    resumable: bool
    settings: dict[str, Any]


class RunRows(BaseModel):
    runs: list[RunRow]
    left_out: int = Field(description="older runs that are not listed")


class Rounds(BaseModel):
    """Rounds of a run, as columns, and who took part in them."""

    run: RunRow
    rounds: dict[str, list[float | None]]
    num_ue: int
    who: list[tuple[int, int, int]] = Field(
        description="round, UE, and what became of it: 0 left out, 1 selected but not decoded, 2 decoded"
    )
    energy_per_ue: list[float] = Field(description="[J] since the first round")


class Comparison(BaseModel):
    target_accuracy: float
    headings: list[str]
    table: list[list[str]]
    older: str | None = Field(
        description="runs left out, since a newer one has the same settings and seed"
    )
    left_out: dict[str, str] = Field(description="runs that cannot be read, by id, and why")
    note: str
    rows: list[dict[str, Any]]
    curves: list[dict[str, Any]]
