"""From settings to a simulation."""

import logging
import math
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import nn

from autofl.algorithms import Algorithm
from autofl.channels import Channel
from autofl.compressors import Compressor
from autofl.config import Settings
from autofl.config.parts import checked_settings
from autofl.config.settings import MNIST_STEPS, LearningSettings
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
    build_cell,
    build_channel,
    informed,
    planned_arm,
)
from autofl.experiments.data import load_federated
from autofl.experiments.steps import DECAY, GUARD, INNER_LR, LONGEST
from autofl.models import Params, build, check_model, num_weights, params_of
from autofl.planner import Planner
from autofl.registry import Lazy, Part, find, unknown_key
from autofl.rng import stream
from autofl.robust.aggregators import Aggregator
from autofl.robust.checks import Bounds
from autofl.selection import Selection
from autofl.units import Array

LAW_ROUNDS = 2_000
"""Rounds of the network alone from which it is learned how likely each UE is to be heard."""

log = logging.getLogger(__name__)


class Own(TypedDict, total=False):
    """Parts of a run that may be given as objects instead of by name."""

    dataset: Dataset | None
    data: FederatedData | None
    algorithm: Algorithm | None
    planner: Planner | None
    model: nn.Module | None
    channel: Channel | None
    selection: Selection | None
    compressor: Compressor | None
    downlink: Compressor | None
    aggregator: Aggregator | None


def build_algorithm(settings: Settings) -> Algorithm:
    """The algorithm of these settings, with its own settings from [learning]."""
    settings = settings.resolved()
    part = find("algorithm", settings.algorithm)
    learning = settings.learning
    own = dict(learning.model_extra or {})
    compared = [
        find("algorithm", name)
        for name in dict.fromkeys([settings.algorithm, *settings.compare.algorithms])
    ]
    known = {key: setting for candidate in compared for key, setting in candidate.settings.items()}
    for key in own:
        if key not in known:
            raise AutoFLError(unknown_key("learning", key, known))
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
            MNIST_STEPS[1],
        )
    by_rule = {
        "inner_lr": INNER_LR,
        "outer_lr": math.inf if by_length else MNIST_STEPS[1],
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
    """The model of the settings with its first weights."""
    section = settings.resolved().model
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
    """How models are evaluated."""
    inner_lr = settings.resolved().learning.inner_lr
    evaluation = settings.evaluation
    assert inner_lr is not None  # resolved
    measured = inner_lr == "auto"
    if measured and settings.stop.gradient_norm_sq is not None:
        raise AutoFLError(
            "stop.gradient_norm_sq: grad F is of one alpha, and learning.inner_lr = auto has one for each UE; set it to"
            f" a number, such as learning.inner_lr={MNIST_STEPS[0]}"
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


def build_arm(settings: Settings, air: ChannelAir, own: Own) -> Arm:
    """The algorithm of the settings with everything that goes with it, in this cell; any part may
    be an own object.
    """
    settings = settings.resolved()
    planned = planned_arm(settings, air.cell)
    parts = ("planner", "selection", "compressor", "downlink")
    given: dict[str, Any] = {name: own.get(name) for name in parts if own.get(name) is not None}
    if "downlink" in given:
        given["decides_downlink"] = False
    planned = replace(planned, **given)
    network = Network(arm=planned, air=air, seed=settings.seed, outage=settings.simulation.outage)
    aggregator = own.get("aggregator") or settings.aggregator.build(
        heard_probability=Lazy(lambda: heard_probability(network)), num_ue=settings.cell.count
    )
    algorithm = own.get("algorithm") or build_algorithm(settings)
    return replace(planned, algorithm=algorithm, aggregator=aggregator)


def heard_probability(network: Network) -> Array:
    """P(decoded | selected) of each UE, from rounds of the network alone under another seed; never
    0.
    """
    law = int(stream(network.seed, "law").integers(2**31))
    horizon = draw_horizon(replace(network, seed=law), LAW_ROUNDS)
    selected = np.maximum(horizon.selected.sum(axis=0), 1)
    return np.clip(horizon.decoded.sum(axis=0) / selected, 1.0 / selected, 1.0)


def build_training(
    settings: Settings, params: Params, air: ChannelAir, own: Own | None = None
) -> Training:
    """What a run of these settings is, wherever it takes place."""
    settings = settings.resolved()
    return Training(
        arm=build_arm(settings, air, own or {}),
        air=air,
        params=params,
        stop=Stop(**settings.stop.model_dump()),
        seed=settings.seed,
        outage=settings.simulation.outage,
        evaluate_every=settings.evaluation.every,
    )


def build_simulation(settings: Settings, **own: Unpack[Own]) -> Simulation:
    """The simulation of these settings; any part may be given as an object instead."""
    settings = settings.resolved()
    data = own.get("data") or load_federated(settings, own.get("dataset"))
    model = own.get("model") or build_model(settings, data.sample_shape, data.num_classes)
    check_model(model, data.sample_shape, data.num_classes)
    device = pick_device(settings.simulation.device)
    data = data.to(device)
    model = model.to(device)
    params = params_of(model, data.dtype)
    given = own.get("channel")
    channel = build_channel(settings) if given is None else informed(settings, given)
    sent = num_weights((own.get("algorithm") or build_algorithm(settings)).init(params).sent)
    cell = build_cell(
        settings, data.partition.train_size, sent, own.get("compressor"), own.get("downlink")
    )
    training = build_training(settings, params, ChannelAir(cell, channel), own)
    engine = pick_engine(settings.learning.engine, model, training.algorithm)
    return Simulation(
        **training.__dict__,
        model=model,
        data=data,
        engine=make_engine(engine, model),
        engine_name=engine,
        evaluator=build_evaluator(settings),
        lies=build_lies(settings, cell.num_ue),
    )


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
