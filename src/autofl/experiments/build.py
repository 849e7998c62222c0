"""From settings to a simulation."""

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from autofl.algorithms import Algorithm
from autofl.channels import Channel
from autofl.config import Settings
from autofl.config.parts import checked_settings
from autofl.config.settings import TABLE_I, LearningSettings
from autofl.core.arm import Arm
from autofl.core.decide import Network
from autofl.core.horizon import draw_horizon
from autofl.core.liars import Lies
from autofl.core.play import Training
from autofl.core.round import ChannelAir
from autofl.core.simulation import Simulation
from autofl.core.stop import Stop
from autofl.data import Dataset
from autofl.data.federated import FederatedData
from autofl.engines import make_engine, pick_engine
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator
from autofl.experiments.cell import (
    build_arm,
    build_cell,
    build_channel,
    build_compressor,
    build_downlink,
    informed,
)
from autofl.experiments.data import load_federated
from autofl.experiments.steps import DECAY, GUARD, INNER_LR, LONGEST
from autofl.models import Params, build, check_model, num_weights, params_of
from autofl.network import Cell, Outage
from autofl.registry import Lazy, Part, find
from autofl.rng import stream
from autofl.robust.checks import Bounds
from autofl.units import Array

ALPHA, BETA = TABLE_I["mnist"]
"""Where no rule finds the steps of an algorithm."""
LAW_ROUNDS = 2_000
"""Rounds of the network alone from which it is learned how likely each UE is to be heard."""

log = logging.getLogger(__name__)


def build_algorithm(settings: Settings) -> Algorithm:
    """The algorithm of resolved settings, with its own settings from [learning]."""
    part = find("algorithm", settings.algorithm)
    learning = settings.learning
    own = learning.model_extra or {}
    given = checked_settings(
        part, {key: value for key, value in own.items() if key in part.settings}
    )
    shared: dict[str, Any] = {
        "variant": learning.variant,
        "participation": settings.simulation.num_selected / settings.cell.count,
    }
    steadier = {
        **step_sizes(learning, part),
        "split": None if learning.split is None else tuple(learning.split),
        "batches": learning.batches,
    }
    shared |= {
        key: value for key, value in steadier.items() if value is not None
    }  # else the algorithm's own
    algorithm: Algorithm = part.build(given, shared)
    return algorithm


def step_sizes(learning: LearningSettings, part: Part) -> dict[str, Any]:
    """The settings of an algorithm's steps, those that are "auto" by the rule of
    docs/step-sizes.md.
    """
    names = ("inner_lr", "outer_lr", "lr_decay", "grad_clip", "guard")
    given = {name: getattr(learning, name) for name in names}
    if "auto" not in given.values():
        return given
    by_length = "longest_step" in part.settings
    if given["outer_lr"] == "auto" and "outer_lr" in part.settings and not by_length:
        log.warning(
            "algorithm %s: its beta cannot be found by the rule, so it is %g",
            part.name,
            BETA,
        )
    by_rule = {
        "inner_lr": INNER_LR,
        "outer_lr": math.inf if by_length else BETA,
        "lr_decay": DECAY,
        "grad_clip": 0.0,
        "guard": GUARD,
    }
    bounded = by_length and "auto" in (given["outer_lr"], given["grad_clip"])
    steps = {name: by_rule[name] if value == "auto" else value for name, value in given.items()}
    return steps | ({"longest_step": LONGEST} if bounded else {})


def pick_device(name: str) -> torch.device:
    """The device of this name; "auto" is a GPU where there is one. Products keep full float32
    precision there.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise AutoFLError(
            "simulation.device: there is no GPU here that PyTorch can use; set it to cpu or auto"
        )
    cuda = name != "cpu" and torch.cuda.is_available()
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda" if cuda else "cpu")


def build_model(settings: Settings, sample_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The model of resolved settings with its first weights."""
    section = settings.model
    part = section.part
    given = checked_settings(part, section.given)

    def factory(shape: tuple[int, ...], classes: int) -> nn.Module:
        made = part.build(given, {"sample_shape": shape, "num_classes": classes})
        if not isinstance(made, nn.Module):
            raise AutoFLError(
                f"model {part.name}: it must give a torch.nn.Module, not {type(made).__name__}"
            )
        return made

    return build(factory, sample_shape, num_classes, stream(settings.seed, "init"))


def build_evaluator(settings: Settings) -> Evaluator:
    """How models are evaluated; of resolved settings."""
    inner_lr = settings.learning.inner_lr
    evaluation = settings.evaluation
    assert inner_lr is not None  # resolved
    measured = inner_lr == "auto"
    if measured and settings.stop.gradient_norm_sq is not None:
        raise AutoFLError(
            "stop.gradient_norm_sq: grad F is of one alpha, and learning.inner_lr = auto has one for each UE; set it to"
            f" a number, such as learning.inner_lr={ALPHA}"
        )
    return Evaluator(
        inner_lr=INNER_LR if inner_lr == "auto" else inner_lr,
        measured=measured,
        adapt_samples=evaluation.adapt_samples,
        train_samples=evaluation.train_samples,
        test_samples=evaluation.test_samples,
        num_ue=evaluation.num_ue,
        gradient_norm=settings.stop.gradient_norm_sq is not None,
    )


def heard_probability(network: Network) -> Array:
    """P(decoded | selected) of each UE, from rounds of the network alone under another seed; never
    0.
    """
    law = int(stream(network.seed, "law").integers(2**31))
    horizon = draw_horizon(replace(network, seed=law), LAW_ROUNDS)
    selected = np.maximum(horizon.selected.sum(axis=0), 1)
    return np.clip(horizon.decoded.sum(axis=0) / selected, 1.0 / selected, 1.0)


def assemble(
    arm: Arm,
    cell: Cell,
    channel: Channel,
    data: FederatedData,
    model: nn.Module,
    *,
    seed: int,
    stop: Stop,
    outage: Outage,
    evaluate_every: int,
    evaluator: Evaluator,
    engine: str = "auto",
    lies: Lies | None = None,
) -> Simulation:
    """One run of these pieces: every simulation is made here, whether settings or objects say what
    it is.

    Args:
        cell: fitted to the data and to what the arm sends.
        model: with its first weights, on the device of the data.
    """
    assert arm.algorithm is not None
    name = pick_engine(engine, model, arm.algorithm)
    return Simulation(
        arm=arm,
        air=ChannelAir(cell, channel),
        params=params_of(model, data.dtype),
        stop=stop,
        seed=seed,
        outage=outage,
        evaluate_every=evaluate_every,
        model=model,
        data=data,
        engine=make_engine(name, model),
        engine_name=name,
        evaluator=evaluator,
        lies=lies,
    )


def build_simulation(settings: Settings, **objects: Any) -> Simulation:
    """The simulation of these settings; whatever `simulation_from` takes may be given as an object."""
    return simulation_from(settings.resolved(), **objects)


def simulation_from(
    settings: Settings,
    *,
    dataset: Dataset | None = None,
    data: FederatedData | None = None,
    model: nn.Module | None = None,
    channel: Channel | None = None,
    **parts: Any,
) -> Simulation:
    """The simulation of resolved settings.

    Any part of its arm may be given as an object instead, by the name of its kind: algorithm,
    planner, selection, compressor, downlink, aggregator.
    """
    given = {name: part for name, part in parts.items() if part is not None}

    # Data and model lie on one device.
    data = data or load_federated(settings, dataset)
    model = model or build_model(settings, data.sample_shape, data.num_classes)
    check_model(model, data.sample_shape, data.num_classes)
    device = pick_device(settings.simulation.device)
    data = data.to(device)
    model = model.to(device)

    # What is sent decides how long a round takes, and so the cell.
    algorithm: Algorithm = given.pop("algorithm", None) or build_algorithm(settings)
    ways = {"compressor": build_compressor, "downlink": build_downlink}
    if "downlink" in given:
        given["decides_downlink"] = False
    sent = {name: given.pop(name, None) or make(settings) for name, make in ways.items()}
    weights = num_weights(algorithm.init(params_of(model, data.dtype)).sent)
    cell = build_cell(settings, data.partition.train_size, weights, **sent)
    channel = build_channel(settings) if channel is None else informed(settings, channel)
    return assemble(
        whole_arm(settings, ChannelAir(cell, channel), algorithm, **sent, **given),
        cell,
        channel,
        data,
        model,
        seed=settings.seed,
        stop=Stop(**settings.stop.model_dump()),
        outage=settings.simulation.outage,
        evaluate_every=settings.evaluation.every,
        evaluator=build_evaluator(settings),
        engine=settings.learning.engine,
        lies=build_lies(settings, cell.num_ue),
    )


def build_training(settings: Settings, params: Params, air: ChannelAir) -> Training:
    """What a run of resolved settings is that takes place elsewhere, on devices."""
    ways = {"compressor": build_compressor(settings), "downlink": build_downlink(settings)}
    return Training(
        arm=whole_arm(settings, air, build_algorithm(settings), **ways),
        air=air,
        params=params,
        stop=Stop(**settings.stop.model_dump()),
        seed=settings.seed,
        outage=settings.simulation.outage,
        evaluate_every=settings.evaluation.every,
    )


def whole_arm(settings: Settings, air: ChannelAir, algorithm: Algorithm, **given: Any) -> Arm:
    """The arm of resolved settings that learns in this cell."""
    arm = build_arm(settings, int(air.cell.num_weights), algorithm=algorithm, **given)
    if "aggregator" in given:
        return arm
    network = Network(arm=arm, air=air, seed=settings.seed, outage=settings.simulation.outage)
    aggregator = settings.aggregator.build(
        heard_probability=Lazy(lambda: heard_probability(network)), num_ue=settings.cell.count
    )
    return replace(arm, aggregator=aggregator)


def build_lies(settings: Settings, num_ue: int) -> Lies | None:
    """Who lies in a simulation, and how; None where nobody does and no history is checked."""
    section = settings.attack
    bounds = Bounds(**settings.checks.model_dump())
    if section.name == "none":
        return Lies(None, np.zeros(0, dtype=np.int64), bounds) if bounds.history else None
    if section.begin > settings.stop.rounds:
        log.warning(
            "attack.begin = %d: nobody lies in the %d rounds of this run",
            section.begin,
            settings.stop.rounds,
        )
    return Lies.draw(section.build(), section.share, num_ue, settings.seed, bounds, section.begin)
