"""From settings to a cell, its channel and a planner. NumPy only: planning loads no PyTorch."""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.channels import Channel, Knowledge, success_probability
from autofl.channels.radio import Radio
from autofl.compressors import Compressor
from autofl.compressors.downlink import downlink_bits
from autofl.config import MODEL_WEIGHTS, Settings
from autofl.config.parts import ModelSettings
from autofl.config.settings import DataSettings, KnowledgeSettings
from autofl.core.arm import Arm
from autofl.core.decide import Network, before_training, without_learning
from autofl.core.round import ChannelAir, Round
from autofl.errors import AutoFLError
from autofl.experiments.data import loaded_from
from autofl.files import finite_or_null
from autofl.network import (
    DECISIONS,
    STATUS_NAMES,
    Cell,
    Law,
    Status,
    decoded,
    drop_in_disc,
    round_cost,
)
from autofl.planner import MIN_SAMPLES, Planner, check_bits
from autofl.planner.downlink import offer_of
from autofl.registry import Lazy
from autofl.rng import stream
from autofl.selection import Selection, Uniform
from autofl.units import Array, IntArray, db_to_ratio, dbm_to_watt

PER_UE = (
    "cycles_per_sample",
    "cpu_frequency",
    "min_cpu_frequency",
    "max_energy",
    "max_power",
    "bandwidth",
)


def build_cell(
    settings: Settings,
    data_size: IntArray | None = None,
    num_weights: int | None = None,
    compressor: Compressor | None = None,
    downlink: Compressor | None = None,
) -> Cell:
    """The cell of these settings; every law is drawn from a stream of its own name.

    Args:
        data_size: D_i of a partition, shape (num_ue,); without one, the settings'.
        num_weights: of an update; without it, that of the named model on the named data.
        compressor, downlink: which decide Z and Z_down; without one, the settings'.
    """
    cell = settings.cell
    num_ue = settings.cell.count
    drawn = {
        name: getattr(cell, name).draw(stream(settings.seed, f"cell.{name}"), num_ue)
        for name in PER_UE
    }
    if cell.total_bandwidth is not None:
        shared = min(settings.simulation.num_selected, num_ue) * drawn["bandwidth"].mean()
        drawn["bandwidth"] = drawn["bandwidth"] * (cell.total_bandwidth / shared)
    if cell.positions is not None:
        distance = np.linalg.norm(np.asarray(cell.positions), axis=-1)
    else:
        distance = cell.distance.draw(stream(settings.seed, "cell.distance"), num_ue)
    angle = _angles(settings)
    if data_size is None:
        owned = np.floor(cell.data_size.draw(stream(settings.seed, "cell.data_size"), num_ue))
    else:
        owned = data_size.astype(np.float64)
    if num_weights is None:
        num_weights = _known_weights(settings)
    bits = cell.update_bits or update_bits(
        num_weights or 0, compressor or build_compressor(settings)
    )
    weights = bits / 32.0 if num_weights is None else float(num_weights)
    return Cell(
        distance=distance,
        angle=angle,
        data_size=owned,
        update_bits=np.array(bits),
        local_steps=np.array(float(settings.learning.local_steps)),
        noise_psd=dbm_to_watt(cell.noise_dbm_per_hz + cell.noise_figure_db + cell.noise_rise_db),
        path_loss_exponent=cell.path_loss_exponent,
        snr_threshold=db_to_ratio(cell.snr_threshold_db),
        capacitance=cell.capacitance,
        min_distance=cell.min_distance,
        num_weights=weights,
        overhead=cell.overhead,
        downlink_power=cell.downlink_power,
        downlink_bits=downlink_bits(weights, downlink or build_downlink(settings)),
        downlink_bandwidth=cell.downlink_bandwidth,
        downlink_noise_psd=None
        if cell.downlink_noise_figure_db is None
        else dbm_to_watt(cell.noise_dbm_per_hz + cell.downlink_noise_figure_db),
        downlink_mode=cell.downlink_mode,
        pa_efficiency=cell.pa_efficiency,
        circuit_power=cell.circuit_power,
        receive_power=cell.receive_power,
        link=build_link(settings),
        tries=settings.link.tries,
        **drawn,
    )


def _angles(settings: Settings) -> Array:
    """Directions [rad] in which the UEs are: those of their positions or of their drop, else drawn."""
    cell = settings.cell
    num_ue = settings.cell.count
    if cell.positions is not None:
        x, y = np.asarray(cell.positions, dtype=np.float64).T
    elif cell.distance.law == "disc":
        x, y = drop_in_disc(
            stream(settings.seed, "cell.distance"), num_ue, cell.distance.parameters[0]
        ).T
    else:
        return stream(settings.seed, "cell.angle").uniform(0.0, 2.0 * np.pi, num_ue)
    return np.arctan2(y, x)


def update_bits(num_weights: int, compressor: Compressor | None) -> float:
    """Z [bit]: 32 for each weight, or what the compressor makes of them."""
    return 32.0 * num_weights if compressor is None else compressor.update_bits(num_weights)


def _known_weights(settings: Settings) -> int | None:
    """Number of weights of the settings' model on their data; None where only Z is known."""
    settings = settings.resolved()
    known = MODEL_WEIGHTS.get((settings.model.name, settings.data.name))
    if known is not None or settings.cell.update_bits is not None:
        return known
    return _counted_weights(settings.model.model_dump_json(), settings.data.source())


@lru_cache(maxsize=8)
def _counted_weights(model: str, source: DataSettings) -> int:
    """The weights of a model that is not ours, or on data that are not: it is built once, which
    loads PyTorch.
    """
    from autofl.experiments.build import build_model
    from autofl.models import num_weights, params_of

    dataset, _ = loaded_from(source)
    settings = Settings(model=ModelSettings.model_validate_json(model), data=source).resolved()
    return num_weights(params_of(build_model(settings, dataset.x.shape[1:], dataset.num_classes)))


def build_channel(settings: Settings) -> Channel:
    """Where the channel gains come from."""
    channel: Channel = settings.channel.build(
        fading=settings.small_scale_gain.as_fading(),
        num_ue=settings.cell.count,
        landscape=settings.seed,
    )
    return informed(settings, channel)


def informed(settings: Settings, channel: Channel) -> Channel:
    """The channel with what the planner knows of it."""
    knowledge = settings.knowledge
    if knowledge.error_db == 0.0 and knowledge.age == 0 and knowledge.outage is None:
        return channel
    return Knowledge(channel, knowledge.error_db, knowledge.age, knowledge.outage)


def build_link(settings: Settings) -> Law:
    """From SNR to rate."""
    law: Law = settings.link.build().law()
    return law


def build_selection(settings: Settings) -> Selection:
    """Who takes part in a round."""
    selection: Selection = settings.selection.build(num_selected=settings.simulation.num_selected)
    return selection


def build_compressor(settings: Settings) -> Compressor | None:
    """What compresses an update on its way up; None for nothing."""
    compressor: Compressor | None = (
        settings.compressor.build() if settings.compressor.name != "none" else None
    )
    return compressor


def build_downlink(settings: Settings) -> Compressor | None:
    """What compresses the model on its way down; None for nothing."""
    compressor: Compressor | None = (
        settings.downlink.build() if settings.downlink.name != "none" else None
    )
    return compressor


def build_planner(
    settings: Settings, num_weights: int | None = None, compressor: Compressor | None = None
) -> Planner:
    """The planner of these settings, for updates of so many weights; without a compressor, for that
    of the settings.
    """
    compressor = compressor or build_compressor(settings)
    planner: Planner = settings.planner.build(rates=Lazy(lambda: rates_of(compressor, num_weights)))
    check_bits(planner, compressor is not None)
    return planner


def rates_of(compressor: Compressor | None, num_weights: int | None = None) -> list[list[float]]:
    """Bits per weight and variance that a compressor offers a planner; none where it offers no
    choice.

    The update of a small model has a least size, whatever the budget: with `num_weights`, no rate
        below it is offered.
    """
    offered = getattr(compressor, "rates", None)
    if compressor is None or offered is None:
        return []
    rates = [list(pair) for pair in offered()]
    if num_weights is None:
        return rates
    kept = [
        rate
        for rate in rates
        if compressor.update_bits(num_weights, rate[0]) <= rate[0] * num_weights
    ]
    return kept or [[compressor.update_bits(num_weights) / num_weights, rates[-1][1]]]


def build_arm(
    settings: Settings,
    num_weights: int | None,
    compressor: Compressor | None,
    downlink: Compressor | None,
    **given: Any,
) -> Arm:
    """The arm of resolved settings; what is given is not built, as the ways up and down are not.

    Planning needs no PyTorch, so algorithm and aggregator are there only if they are given.
    """
    chosen: dict[str, Any] = {"algorithm": None, "decides_downlink": settings.decides_downlink}
    if "planner" not in given:
        chosen["planner"] = build_planner(settings, num_weights, compressor)
    if "selection" not in given:
        chosen["selection"] = build_selection(settings)
    return Arm(compressor=compressor, downlink=downlink, **chosen | given)


def build_network(settings: Settings, cell: Cell | None = None) -> Network:
    """A run of these settings without its learning.

    Args:
        cell: that of a simulation, which knows D_i and the size of the model; without one, as
            `autofl plan` has it.
    """
    settings = settings.resolved()
    compressor = build_compressor(settings)
    downlink = build_downlink(settings)
    if cell is None:
        cell = build_cell(settings, compressor=compressor, downlink=downlink)
    return Network(
        arm=build_arm(settings, int(cell.num_weights), compressor, downlink),
        air=ChannelAir(cell, build_channel(settings)),
        seed=settings.seed,
        outage=settings.simulation.outage,
    )


@dataclass(frozen=True)
class RoundPlan:
    """A planned round of a whole cell: the plan, the channel it was made for, and what it costs."""

    round: Round
    success_probability: (
        Array | None
    )  # P(xi >= phi) at the planned power, where the channel has a law
    downlink: Compressor | None = None  # of a message down whose bits are decided

    def reasons(self) -> list[str]:
        """Why a UE is infeasible, by what the planner knows: power (not decodable even at P_max),
        data, or energy.
        """
        cell = self.round.cell
        reachable = decoded(cell, self.round.known, cell.max_power)
        owned = np.where(cell.data_size < MIN_SAMPLES, "data", "energy")
        reasons = np.where(reachable, owned, "power")
        return [
            str(reason)
            for reason in np.where(self.round.plan.status == Status.INFEASIBLE, reasons, "")
        ]

    def columns(self) -> dict[str, NDArray[Any]]:
        """What each UE is told and what it costs, SI and linear, arrays of shape (num_ue,)."""
        this_round = self.round
        plan = this_round.plan
        cost = this_round.cost
        chance = self.success_probability
        columns = {
            "id": np.arange(this_round.cell.num_ue),
            "distance": this_round.cell.distance,
            "channel_gain": this_round.gain,
            "num_samples": plan.num_samples,
            "tx_power": plan.tx_power,
            "snr": this_round.snr,
            "upload_time": cost.upload_time,
            "compute_time": cost.compute_time,
            "energy": cost.energy,
            "status": np.array(STATUS_NAMES)[plan.status],
            "samples_limit": np.array(STATUS_NAMES)[plan.samples_limit],
            "power_limit": np.array(STATUS_NAMES)[plan.power_limit],
            "infeasible_because": np.array(
                [reason or None for reason in self.reasons()], dtype=object
            ),
            "success_probability": np.full(this_round.cell.num_ue, None, dtype=object)
            if chance is None
            else chance,
        }
        return columns | {name: getattr(plan, name) for name in DECISIONS if name not in columns}

    def summary(self) -> dict[str, object]:
        """The round as a whole, as plain values."""
        plan = self.round.plan
        cost = self.round.cost
        slowest = int(np.argmax(cost.compute_time + cost.upload_time))
        planned = round_cost(self.round.cell, self.round.known, plan.only(self.round.sends))
        return {
            "round_time": float(cost.time),
            "planned_time": float(
                planned.time
            ),  # without transmissions that this round's channel makes necessary
            "slowest": slowest,
            "slowest_compute_time": float(cost.compute_time[slowest]),
            "slowest_upload_time": float(cost.upload_time[slowest]),
            "downlink_time": float(cost.downlink_time),
            "downlink_bits": self.round.cell.downlink_bits / self.round.cell.num_weights,
            "overhead": float(cost.overhead),
            "num_feasible": int(plan.feasible.sum()),
            "energy": float(cost.energy.sum()),
            "certificate": None
            if plan.certificate is None
            else finite_or_null(asdict(plan.certificate)),
        }

    def downlink_choice(self) -> dict[str, float] | None:
        """Why the message down has its bits: what it typically loses, its time and that of the
        model as it is.

        None where its bits are not decided, or nobody takes part.
        """
        cell = self.round.cell
        cost = self.round.cost
        if self.downlink is None or not self.round.sends.any():
            return None
        offer = offer_of(self.downlink, int(cell.num_weights))
        return {
            "bits_per_weight": float(
                np.interp(cell.downlink_bits, offer.size, offer.bits_per_weight)
            ),
            "lost": float(np.interp(cell.downlink_bits, offer.size, offer.lost)),
            "time": float(cost.downlink_time),
            "whole_time": float(cost.downlink_time) * float(offer.size[-1]) / cell.downlink_bits,
        }

    def decided(self) -> dict[str, dict[str, float]]:
        """The message down where its bits are decided; else nothing."""
        choice = self.downlink_choice()
        return {} if choice is None else {"downlink": choice}

    def table(self) -> dict[str, object]:
        """Everything as plain values, SI and linear, for JSON."""
        columns = self.columns()
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return {
            **self.summary(),
            **self.decided(),
            "ues": [dict(zip(columns, row, strict=True)) for row in rows],
        }


def plan_table(settings: Settings, made: RoundPlan) -> dict[str, Any]:
    """What `autofl plan --json` says of a planned round."""
    return {**planned_by(settings), **made.table()}


def planned_by(settings: Settings) -> dict[str, str]:
    """Planner and arm of a plan."""
    return {"planner": settings.planner.name, "algorithm": settings.arm_name}


def places(settings: Settings) -> Array:
    """x and y [m] of the UEs as a run begins, the base station being at (0, 0); shape (2, num_ue)."""
    settings = settings.resolved()
    cell = build_cell(settings)
    channel = build_channel(settings.model_copy(update={"knowledge": KnowledgeSettings()}))
    if not isinstance(channel, Radio):
        return cell.position
    place = channel.large_scale(cell).place
    return np.stack([place.x, place.y])


def whole_cell(settings: Settings) -> Network:
    """The network of these settings with every UE selected, planned as `plan` does."""
    network = build_network(settings)
    everybody = Uniform(settings.cell.count)
    return replace(network, arm=replace(network.arm, selection=everybody))


def plan(settings: Settings) -> RoundPlan:
    """Plan one round of the cell of these settings: every UE selected, its channel that of round 1."""
    network = whole_cell(settings)
    assert isinstance(network.air, ChannelAir)
    cell = network.air.cell
    channel = network.air.channel
    this_round, _ = without_learning(network, before_training(network))
    try:
        chance = success_probability(
            this_round.plan.applied(cell), channel, this_round.plan.tx_power
        )
    except AutoFLError:  # a trace, say, has no law
        chance = None
    return RoundPlan(this_round, chance, network.decided_downlink)
