"""Settings: frozen, validated models with the paper's values as defaults. Units other than SI end a
name.
"""

import difflib
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    model_validator,
)
from pydantic_core import PydanticCustomError

from autofl.config.arms import USUAL, Arm, name_of_arm, read_arm, title_of, with_files_read
from autofl.config.layers import arm_below, layered, sections
from autofl.config.parts import (
    SECTIONS,
    AggregatorSettings,
    AttackSettings,
    ChannelSettings,
    CompressorSettings,
    DownlinkSettings,
    LinkSettings,
    ModelSettings,
    PlannerSettings,
    SelectionSettings,
    checked_settings,
)
from autofl.config.quantity import Bounds, PerUE
from autofl.errors import AutoFLError
from autofl.registry import PARTS, Part, find, unknown_key
from autofl.rng import stream
from autofl.units import Array

MODEL_WEIGHTS = {
    **{("mlp", data): 79_510 for data in ("mnist5k", "mnist", "fashion-mnist")},
    ("mlp", "cifar10"): 308_310,
    ("lenet5", "cifar10"): 62_006,
}
"""Weights of the models on the data sets they fit, so that planning needs no PyTorch."""
TABLE_I = {"mnist": (0.03, 0.07), "cifar10": (0.06, 0.02)}
"""alpha and beta of Table I; data that are not listed take MNIST's."""
GAINS = {
    "paper": PerUE(law="rayleigh", parameters=(40.0,)),
    "physical": PerUE(law="exponential", parameters=(1.0,)),
}
"""Small-scale gains by preset."""
MOST_ASKED = 100
"""UEs from which the joint planner chooses in a round; more would be planned for longer than they
save.
"""
LEAST = 1e-15
"""A power, band or frequency up to this must be a typing error: times would leave the range of
numbers.
"""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class CellSettings(Section):
    """The UEs and their radio. Per-UE values: one number for all, a list, or a law such as {uniform
    = [1, 2]}.
    """

    num_ue: int | None = Field(
        None, ge=1, le=10_000_000, description="n; 20 unless a list says otherwise"
    )
    distance: Annotated[PerUE, Bounds(0, 1e7, ("disc", "uniform"), open_low=False)] = Field(
        PerUE(law="disc", parameters=(200.0,)),
        description="r_i [m]; {disc = R} places UEs uniformly in a disc",
    )
    positions: list[list[float]] | None = Field(
        None, description="[x, y] of each UE in m, instead of distance"
    )
    small_scale_gain: Annotated[PerUE, Bounds(0, 1e12, ("rayleigh", "exponential"))] | None = Field(
        None, description="h_i: {rayleigh = s}, {exponential = mean}, or fixed; default by preset"
    )
    cycles_per_sample: Annotated[PerUE, Bounds(LEAST, 1e15)] = Field(
        PerUE(law="uniform", parameters=(0.8e5, 1.2e5)), description="C_i [cycle/sample]"
    )
    cpu_frequency: Annotated[PerUE, Bounds(LEAST, 1e15)] = Field(
        PerUE(value=1e9), description="vartheta_i [cycle/s]"
    )
    min_cpu_frequency: Annotated[PerUE, Bounds(LEAST, 1e15)] = Field(
        PerUE(value=1e8),
        description="[cycle/s] to which a planner may slow the CPU; at most vartheta_i",
    )
    data_size: Annotated[PerUE, Bounds(0, 1e12, open_low=False)] = Field(
        PerUE(value=2000.0),
        description="D_i [sample], for plan only; a simulation uses the partition",
    )
    max_energy: Annotated[PerUE, Bounds(0, 1e9, open_low=False)] = Field(
        PerUE(value=0.003), description="E_max [J] per round"
    )
    max_power: Annotated[PerUE, Bounds(LEAST, 1e6)] = Field(
        PerUE(value=0.01), description="P_max [W]"
    )
    bandwidth: Annotated[PerUE, Bounds(LEAST, 1e12)] = Field(
        PerUE(value=1e6), description="B [Hz] of each UE"
    )
    total_bandwidth: float | None = Field(
        None,
        ge=1.0,
        le=1e15,
        description="[Hz] that the UEs of a round share, by their bandwidths; default: their sum",
    )
    noise_dbm_per_hz: float = Field(-174.0, ge=-300, le=100, description="N0 [dBm/Hz]")
    noise_figure_db: float = Field(0.0, ge=0, le=100, description="of the base station [dB]")
    noise_rise_db: float = Field(
        0.0, ge=0, le=100, description="by how much interference raises the noise [dB]"
    )
    path_loss_exponent: float = Field(3.8, gt=0, le=20, description="kappa")
    snr_threshold_db: float = Field(
        30.0, ge=-100, le=200, description="phi [dB]; for the links shannon and gap"
    )
    pa_efficiency: float = Field(
        1.0, gt=0, le=1, description="eta of the power amplifier: sending draws p / eta"
    )
    circuit_power: float = Field(
        0.0, ge=0, le=1e6, description="P_c [W] that a UE also draws while it sends"
    )
    receive_power: float = Field(
        0.0, ge=0, le=1e6, description="P_rx [W] that a UE draws while it receives the model"
    )
    capacitance: float = Field(1e-27, gt=0, le=1, description="varsigma [J s^2/cycle^3]")
    update_bits: float | None = Field(
        None, ge=1, le=1e15, description="Z [bit]; default 32 per weight"
    )
    min_distance: float = Field(1.0, ge=1e-3, le=1e6, description="r_min [m]")
    overhead: float = Field(
        0.0, ge=0, le=1e6, description="T_over [s], added to computing and sending in every round"
    )
    downlink_power: float | None = Field(
        None,
        gt=LEAST,
        le=1e6,
        description="P_bs [W] of the base station; default: sending the model down takes no time",
    )
    downlink_mode: Literal["broadcast", "unicast"] = Field(
        "broadcast", description="the model is sent down once for all, or to each UE in turn"
    )
    downlink_bandwidth: float | None = Field(
        None,
        gt=LEAST,
        le=1e15,
        description="[Hz] in which the model is sent down; default: the sum of the UEs' bands",
    )
    downlink_noise_figure_db: float | None = Field(
        None, ge=0, le=100, description="of the UEs [dB]; default: noise as at the base station"
    )

    @model_validator(mode="after")
    def _one_number_of_ues(self) -> Self:
        lengths = {
            name: value.length
            for name in type(self).model_fields
            if isinstance(value := getattr(self, name), PerUE) and value.length is not None
        }
        if self.positions is not None:
            if "distance" in self.model_fields_set:
                raise PydanticCustomError("cell", "give distance or positions, not both")
            if not self.positions or any(
                len(place) != 2 or max(map(abs, place)) > 1e7 for place in self.positions
            ):
                raise PydanticCustomError("cell", "positions must be a list of [x, y] within 1e7 m")
            lengths["positions"] = len(self.positions)
        if self.num_ue is not None:
            lengths["num_ue"] = self.num_ue
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise PydanticCustomError("cell", "different numbers of UEs: {said}", {"said": said})
        return self

    @property
    def count(self) -> int:
        """n."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, PerUE) and value.length is not None:
                return value.length
        return len(self.positions) if self.positions is not None else self.num_ue or 20

    def own_bandwidth(self, seed: int) -> Array:
        """B of each UE [Hz], of which only the ratios count where the band of all together is
        given.
        """
        return self.bandwidth.draw(stream(seed, "cell.bandwidth"), self.count)


class KnowledgeSettings(Section):
    """What the planner knows of the channel gains; by default everything."""

    error_db: float = Field(
        0.0, ge=0, le=100, description="standard deviation of the error in the planner's gains [dB]"
    )
    age: int = Field(
        0, ge=0, le=1_000_000, description="how many rounds old the planner's gains are"
    )
    outage: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="probability of outage for which planners leave a margin; default: no margin",
    )


class DataSettings(Section):
    """Which samples, and who owns them. A user's own data set or partition takes its settings from
    here too.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    name: str = Field(
        "mnist5k",
        min_length=1,
        description='data set; npz: your own arrays; "module:object": your own code',
    )
    folder: str | None = Field(
        None, min_length=1, description="where it is; default AUTOFL_DATA or the cache"
    )
    file: str | None = Field(
        None, min_length=1, description="for npz: a .npz with x, y and optionally ue"
    )
    partition: str = Field(
        "labels",
        min_length=1,
        description='iid, labels, dirichlet; own: by the array ue of the .npz; "module:object"',
    )
    labels: int = Field(5, ge=1, le=100_000, description="l, labels of each UE")
    concentration: float = Field(0.5, ge=1e-3, le=1e6, description="of the Dirichlet law")
    values: Literal["auto", "pixels", "table", "ids"] = Field(
        "auto",
        description="what samples hold; auto: bytes are pixels, floating vectors a table",
    )
    standardise: bool = Field(
        True,
        description="scale to mean 0, deviation 1; false: pixels to 0..1, tables as they are",
    )

    @model_validator(mode="after")
    def _own_arrays(self) -> Self:
        for kind, name in (("data", self.name), ("partition", self.partition)):
            if ":" not in name and name not in PARTS[kind]:  # type: ignore[index]
                raise PydanticCustomError(
                    "part",
                    "{kind} '{name}' is unknown; there are {known}, or your own as module:object",
                    {"kind": kind, "name": name, "known": ", ".join(PARTS[kind])},  # type: ignore[index]
                )
        self._check_own_settings()
        if (self.name == "npz") != (self.file is not None):
            raise PydanticCustomError("data", 'file and name = "npz" go together')
        if self.partition == "own" and self.name != "npz":
            raise PydanticCustomError(
                "data", 'partition = "own" needs name = "npz" and an array ue in its file'
            )
        return self

    def _check_own_settings(self) -> None:
        """Keys beside the fields are settings of a user's own data set or partition; no others are
        known.
        """
        own = [
            (kind, name)
            for kind, name in (("data", self.name), ("partition", self.partition))
            if ":" in name
        ]
        try:
            parts = [find(kind, name) for kind, name in own] if self.model_extra else []  # type: ignore[arg-type]
            known = [*type(self).model_fields, *(key for part in parts for key in part.settings)]
            for key in self.model_extra or {}:
                if not any(key in part.settings for part in parts):
                    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
                    raise AutoFLError(f"data.{key}: unknown key; the nearest is 'data.{nearest}'")
            for part in parts:
                checked_settings(part, self.given(part))
        except AutoFLError as error:
            raise PydanticCustomError("part", "{error}", {"error": str(error)}) from None

    def given(self, part: Part) -> dict[str, Any]:
        """The settings that a part takes from here besides the fields."""
        return {
            key: value for key, value in (self.model_extra or {}).items() if key in part.settings
        }

    def source(self) -> "DataSettings":
        """The data set alone, whoever owns its samples."""
        return DataSettings(
            name=self.name,
            folder=self.folder,
            file=self.file,
            **self.given(find("data", self.name)),
        )


StepSize = float | Literal["auto"] | None


def _of(low: float, high: float, *, above: bool = False) -> Any:
    """A step size: a number from `low`, or above it, to `high`, or "auto"."""

    def checked(value: Any) -> Any:
        if value is None or value == "auto":
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PydanticCustomError("steps", "must be a number or 'auto'")
        if not (low < value <= high if above else low <= value <= high):
            bounds = {"sign": ">" if above else ">=", "low": f"{low:g}", "high": f"{high:g}"}
            raise PydanticCustomError(
                "steps", "must be {sign} {low} and <= {high}, or 'auto'", bounds
            )
        return value

    return BeforeValidator(checked)


BY_DEFAULT = "auto: docs/step-sizes.md, the default of planner joint; else the paper's"


class LearningSettings(Section):
    """The client update. An algorithm with settings of its own takes them from here too, by their
    names.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    inner_lr: Annotated[StepSize, _of(0, 1e3)] = Field(None, description=f"alpha; {BY_DEFAULT}")
    outer_lr: Annotated[StepSize, _of(0, 1e3, above=True)] = Field(
        None, description=f"beta; {BY_DEFAULT}"
    )
    local_steps: int = Field(
        1, ge=1, le=1000, description="tau; each step has d samples of its own"
    )
    variant: Literal["exact", "first-order", "finite-difference"] = Field(
        "exact", description="of the meta-gradient"
    )
    lr_decay: Annotated[StepSize, _of(0, 1e6)] = Field(
        None,
        description="beta in round k is beta / sqrt(1 + lr_decay (k - 1)); default: as beta, else 0",
    )
    split: list[float] | None = Field(
        None,
        description="shares of d for the inner, outer and Hessian batch; default thirds",
    )
    batches: Literal["disjoint", "independent"] | None = Field(
        None,
        description="whether the three batches of a step may share samples; default: disjoint",
    )
    guard: Annotated[StepSize, _of(0, 1e6)] = Field(
        None,
        description="c: the Hessian term of a meta-gradient is at most c times the rest; 0: off",
    )
    grad_clip: Annotated[StepSize, _of(0, 1e9)] = Field(
        None,
        description="length to which a gradient is clipped; auto: steps of bounded length; 0: off",
    )
    engine: Literal["auto", "loop", "vmap", "low_rank"] = Field(
        "auto", description="how client updates are computed"
    )

    @model_validator(mode="after")
    def _three_shares(self) -> Self:
        split = self.split
        if split is not None and not (
            len(split) == 3 and min(split) > 0 and abs(sum(split) - 1.0) <= 1e-9
        ):
            raise PydanticCustomError(
                "learning", "split: give three shares > 0 of sum 1, such as [0.1, 0.8, 0.1]"
            )
        return self


class SimulationSettings(Section):
    """The loop."""

    num_selected: int = Field(
        5,
        ge=1,
        le=10_000_000,
        description="UEs selected in a round; the planner joint chooses among all unless it is set",
    )
    outage: Literal["skip", "wait"] = Field(
        "skip", description="skip UEs that cannot be heard, or wait for them"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a GPU if there is one"
    )
    threads: int = Field(
        1,
        ge=1,
        le=4096,
        description="of one run; a comparison makes as many runs at once as fit the cores",
    )


class StopSettings(Section):
    """When a run ends: after a number of rounds, or earlier."""

    rounds: int = Field(200, ge=1, le=10_000_000, description="K")
    target_accuracy: float | None = Field(None, gt=0, le=1, description="stop when it is reached")
    sim_time: float | None = Field(
        None, gt=0, le=1e12, description="stop after this many simulated seconds"
    )
    gradient_norm_sq: float | None = Field(
        None, gt=0, le=1e12, description="stop when the squared norm of grad F is below this (slow)"
    )
    plateau: bool = Field(False, description="stop when accuracy stays within 1 % over 20 rounds")
    stalled: int | None = Field(
        None,
        ge=20,
        le=10_000_000,
        description="stop when accuracy rises by no more than its noise over so many rounds",
    )
    metric: Literal["adapted", "global"] = Field("adapted", description="which accuracy counts")


class EvaluationSettings(Section):
    """How a model is judged."""

    every: int = Field(5, ge=1, le=10_000_000, description="rounds between evaluations")
    adapt_samples: int = Field(
        50, ge=1, le=1_000_000, description="for the adaptation step at each UE"
    )
    train_samples: int = Field(
        100, ge=1, le=1_000_000, description="for the training loss at each UE"
    )
    test_samples: int | None = Field(
        None, ge=1, le=10_000_000, description="for the accuracy at each UE; default all"
    )
    num_ue: int | None = Field(
        None, ge=1, le=10_000_000, description="number of UEs evaluated, drawn once; default all"
    )


class DeploySettings(Section):
    """A run on real devices."""

    transport: Literal["stream", "messages"] = Field(
        "stream",
        description="stream: one per device, messages if its port is closed; messages: Flower's",
    )
    port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="of the stream; 0: a free one, with several machines the SuperLink's plus 1",
    )
    deadline: float = Field(
        60.0, gt=0, le=1e6, description="seconds the server waits for the replies of a round"
    )
    join: float = Field(
        60.0, ge=0, le=1e6, description="seconds the server waits for all UEs at the start"
    )
    channel: Literal["emulated", "reported"] = Field(
        "emulated",
        description="gains are drawn from the cell (emulated), or reported by each device",
    )
    overhead: Literal["set", "measured"] = Field(
        "set",
        description="overhead that rounds are planned with: cell.overhead, or the measured one",
    )
    statistics: Literal["shared", "own"] = Field(
        "shared",
        description="pixels are standardised by the sums of all devices, or by each device's own",
    )
    sample_shape: list[int] | None = Field(
        None,
        min_length=1,
        max_length=4,
        description="of the devices' data; default: as dealt out, or as most devices have it",
    )
    num_classes: int | None = Field(
        None, ge=1, le=10_000, description="of the devices' data; goes with sample_shape"
    )
    clip: float | None = Field(
        None, gt=0, le=1e9, description="norm to which a device clips its update"
    )
    noise_multiplier: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="standard deviation of the noise a device adds, in units of clip",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of the (epsilon, delta) guarantee")

    @model_validator(mode="after")
    def _form(self) -> Self:
        if (self.sample_shape is None) != (self.num_classes is None):
            raise PydanticCustomError("deploy", "sample_shape and num_classes go together")
        if self.sample_shape is not None and not all(
            1 <= extent <= 10_000 for extent in self.sample_shape
        ):
            raise PydanticCustomError("deploy", "sample_shape: extents from 1 to 10000")
        return self

    @model_validator(mode="after")
    def _private(self) -> Self:
        if self.noise_multiplier > 0 and self.clip is None:
            raise PydanticCustomError(
                "deploy", "noise_multiplier needs clip, the norm it is a multiple of"
            )
        if self.clip is not None and self.statistics == "shared":
            raise PydanticCustomError(
                "deploy", 'clip needs statistics = "own": shared pixel sums are not private'
            )
        return self


class CheckSettings(Section):
    """What the server asks of an update that is well-formed: in deployments, and where liars are
    simulated.
    """

    norm_bound: float = Field(
        5.0,
        ge=0,
        le=1e9,
        description="updates longer than this many times what is usual are left out; 0: off",
    )
    shorten: float = Field(
        1.5,
        ge=0,
        le=1e9,
        description="updates longer than this many times what is usual are shortened to it; 0: off",
    )
    history: float = Field(
        0.0,
        ge=0,
        lt=0.5,
        description="share of UEs that may be left out because they opposed the others so far; 0: off",
    )
    evenness: float = Field(
        0.995,
        ge=0,
        lt=1,
        description="updates that differ from the mean this evenly (a cosine) are left out; 0: off",
    )


Value = TypeVar("Value")


def _read(kind: str, read: Callable[[], Value]) -> Value:
    """What is read, or the reason why it cannot be as an error of the settings."""
    try:
        return read()
    except AutoFLError as error:
        raise PydanticCustomError(kind, "{error}", {"error": str(error)}) from None


class CompareSettings(Section):
    """A comparison: which arms, over which seeds, judged at which accuracy."""

    arms: list[Arm] = Field(
        ["autofl", "per-fedavg", "fedavg-1", "fedavg-2", "autofl-j"],
        min_length=1,
        max_length=100,
        description="in this order, each as `arm` names it",
    )
    seeds: int = Field(3, ge=1, le=10_000, description="how many seeds: seed, seed + 1, ...")
    target_accuracy: float = Field(0.85, gt=0, le=1, description="for time to accuracy")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = _read("compare", lambda: [name_of_arm(arm) for arm in self.arms])
        if len(set(names)) < len(names):
            raise PydanticCustomError("compare", "arms: each may be named once")
        return self


class Settings(Section):
    """Everything a run needs. `autofl list settings` prints them all."""

    seed: int = Field(1, ge=0, le=2**63 - 1, description="seed of everything random")
    preset: Literal["paper", "physical"] = Field(
        "paper", description="small-scale gain: Rayleigh(40) or Exp(1)"
    )
    arm: Arm = Field(
        USUAL, description='what simulate runs; your own: a file, or an algorithm "module:object"'
    )
    scenario: str | None = Field(
        None, description="of `autofl list scenarios`: the settings below those of the arm"
    )
    cell: CellSettings = CellSettings()
    channel: ChannelSettings = ChannelSettings()
    link: LinkSettings = LinkSettings()
    knowledge: KnowledgeSettings = KnowledgeSettings()
    selection: SelectionSettings = SelectionSettings()
    planner: PlannerSettings = PlannerSettings()
    compressor: CompressorSettings = CompressorSettings()
    downlink: DownlinkSettings = DownlinkSettings()
    aggregator: AggregatorSettings = AggregatorSettings()
    attack: AttackSettings = AttackSettings()
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    learning: LearningSettings = LearningSettings()
    simulation: SimulationSettings = SimulationSettings()
    stop: StopSettings = StopSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checks: CheckSettings = CheckSettings()
    compare: CompareSettings = CompareSettings()
    deploy: DeploySettings = DeploySettings()

    @model_validator(mode="wrap")
    @classmethod
    def _on_top_of_its_arm(cls, said: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """What is said lies on top of an arm and a scenario; what they give does not count as set."""
        if not isinstance(said, dict):
            return validate(said)
        plain = {
            name: value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
            for name, value in said.items()
        }
        arm = plain.get("arm", USUAL)
        if not isinstance(arm, str | dict) or not isinstance(plain.get("scenario", ""), str | None):
            return validate(plain)  # which says so
        plain = _read("settings", lambda: with_files_read(plain))
        settings = validate(_read("settings", lambda: layered(plain)))
        settings.model_fields_set.intersection_update(plain)
        for name in type(settings).model_fields:
            section = getattr(settings, name)
            if isinstance(section, BaseModel):
                section.model_fields_set.intersection_update(plain.get(name, ()))
        settings._check_shared_keys()
        return settings

    def _check_shared_keys(self) -> None:
        """Those of [planner] and [learning]: the arms of a comparison share them, so one may lack a
        key.
        """
        is_compared = "arms" in self.compare.model_fields_set
        is_shared = is_compared and "name" not in self.planner.model_fields_set
        known = [_planner_of(arm).settings for arm in self.compare.arms] if is_shared else []
        for key in self.planner.foreign:
            if not any(key in settings for settings in known):
                part = self.planner.part
                words = unknown_key(f"planner {part.name}", key, part.settings)
                raise PydanticCustomError("part", "{words}", {"words": words})

        if extra := list(self.learning.model_extra or {}):
            algorithms = {read_arm(arm)["algorithm"] for arm in [self.arm, *self.compare.arms]}
            parts = _read("settings", lambda: [find("algorithm", name) for name in algorithms])
            keys = [
                *LearningSettings.model_fields,
                *(key for part in parts for key in part.settings),
            ]
            for key in extra:
                if key not in keys:
                    nearest = difflib.get_close_matches(key, keys, n=1, cutoff=0.0)[0]
                    said = {"key": key, "nearest": f"learning.{nearest}"}
                    raise PydanticCustomError(
                        "settings", "learning.{key}: unknown key; the nearest is '{nearest}'", said
                    )

    @model_validator(mode="after")
    def _enough_ues(self) -> Self:
        is_set = "num_selected" in self.simulation.model_fields_set
        if self.simulation.num_selected > self.cell.count and is_set:
            raise PydanticCustomError(
                "settings",
                "simulation.num_selected: {selected} is more than the {count} UEs of the cell",
                {"selected": self.simulation.num_selected, "count": self.cell.count},
            )
        return self

    @property
    def arm_name(self) -> str:
        """What folders and columns call the arm."""
        return name_of_arm(self.arm)

    @property
    def title(self) -> str:
        """What tables call the arm."""
        return title_of(self.arm)

    @property
    def algorithm(self) -> str:
        """The algorithm of the arm."""
        return str(read_arm(self.arm)["algorithm"])

    @property
    def small_scale_gain(self) -> PerUE:
        """That of the cell, or of the preset."""
        return self.cell.small_scale_gain or GAINS[self.preset]

    def with_arm(self, arm: Arm) -> "Settings":
        """The same settings for another arm, as far as they are set and its planner has them."""
        said = {**self.said(), "arm": arm}
        planner = said.get("planner", {})
        if "name" not in planner:
            known = _planner_of(arm).settings
            said["planner"] = {key: value for key, value in planner.items() if key in known}
        return Settings.model_validate(said)

    def said(self) -> dict[str, Any]:
        """What is set, as a nested table; what arm and scenario give is not in it."""
        table = {}
        for name, value in self.table().items():
            section = getattr(self, name)
            if not isinstance(section, BaseModel):
                if name in self.model_fields_set:
                    table[name] = value
            elif set_here := section.model_fields_set & value.keys():
                table[name] = {key: value[key] for key in value if key in set_here}
        return table

    @property
    def decides_downlink(self) -> bool:
        """Whether the bits of the downlink are decided in each round: under the joint planner, if
        they are not set.
        """
        return self.planner.name == "joint" and self.downlink.is_open

    @property
    def chooses_among_all(self) -> bool:
        """Whether the planner decides how many UEs take part: the joint planner, unless their
        number is set.
        """
        return (
            self.planner.name == "joint" and "num_selected" not in self.simulation.model_fields_set
        )

    def _among_all(self) -> dict[str, BaseModel]:
        """The sections of a run whose planner chooses among all UEs, in the band that the usual
        number would have.
        """
        total = self.cell.total_bandwidth
        band = self.usual_band() if total is None else total
        return {
            "cell": self.cell.model_copy(update={"total_bandwidth": band}),
            "simulation": self.simulation.model_copy(update={"num_selected": self.most_asked}),
        }

    @property
    def most_asked(self) -> int:
        """UEs from which the joint planner chooses in a round, unless their number is set."""
        return min(MOST_ASKED, self.cell.count)

    @property
    def usual_number(self) -> int:
        """|A_k| where it is not set and nobody chooses."""
        return min(SimulationSettings().num_selected, self.cell.count)

    def usual_band(self, num_ue: int | None = None) -> float:
        """Band [Hz] of so many UEs, by default the usual number, at the mean of what each has."""
        return float((num_ue or self.usual_number) * self.cell.own_bandwidth(self.seed).mean())

    def foregone(self) -> list[str]:
        """What the arm would have and does not, because something else is set, in words."""
        instead = []
        here = self.model_dump()
        for name, values in sections(arm_below(self.said())).items():
            is_replaced = "name" in values and here[name]["name"] != values["name"]
            if name == "planner" and is_replaced:  # by name, and on purpose
                continue
            for key in ["name"] if is_replaced else values:
                if here[name][key] != values[key]:
                    instead.append(f"{name}.{key} = {here[name][key]} instead of {values[key]}")
        return instead

    def resolved(self) -> "Settings":
        """The same with every default that depends on another setting written out."""
        whole = self.model_copy(update=self._among_all()) if self.chooses_among_all else self
        return whole._written_out()

    def _written_out(self) -> "Settings":
        usual = "lenet5" if self.data.name == "cifar10" else "mlp"
        model = usual if self.model.name == "auto" else self.model.name
        inner_lr, outer_lr = TABLE_I.get(self.data.name, TABLE_I["mnist"])
        usual_steps = {"inner_lr": inner_lr, "outer_lr": outer_lr}
        unset = {
            name: value
            for name, value in usual_steps.items()
            if getattr(self.learning, name) is None
        }
        return self.model_copy(
            update={
                "cell": self.cell.model_copy(
                    update={
                        "num_ue": self.cell.count,
                        "small_scale_gain": self.small_scale_gain,
                    }
                ),
                **{name: getattr(self, name).resolved() for name in SECTIONS},
                "model": self.model.model_copy(update={"name": model}),
                "scenario": None,
                **({"downlink": self.downlink} if self.decides_downlink else {}),
                "learning": self.learning.model_copy(update=unset),
                "simulation": self.simulation.model_copy(
                    update={"num_selected": min(self.simulation.num_selected, self.cell.count)}
                ),
            }
        )

    def table(self) -> dict[str, Any]:
        """As nested plain values for a TOML file; what is not set is left out."""
        return self.model_dump(
            exclude_none=True, exclude={"cell": {"distance"}} if self.cell.positions else None
        )


def _planner_of(arm: Arm) -> Part:
    """The planner that comes with an arm."""
    return find("planner", arm_below({"arm": arm}).get("planner", {}).get("name", "paper"))
