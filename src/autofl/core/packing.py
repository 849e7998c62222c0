"""A checkpoint as arrays and facts, as a file holds them, and back."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from autofl.algorithms import Algorithm
from autofl.core.checkpoint import Checkpoint, group
from autofl.errors import AutoFLError
from autofl.models import Params
from autofl.quality import Evaluation

Arrays = Mapping[str, NDArray[Any]]
ANEW = "to begin the run anew, give its command with --force, or remove its folder"
FACTS = ("round", "sim_time", "message", "stop")


def packed(checkpoint: Checkpoint) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """All of a checkpoint: arrays by name, and facts that JSON holds to the bit."""
    values = {f"planner.{name}": held for name, held in checkpoint.memory.items()}
    for one in fields(checkpoint.state):
        values |= _named(f"state.{one.name}", getattr(checkpoint.state, one.name))
    if checkpoint.held is not None:
        values |= _named("held", checkpoint.held)
    values |= _named("world", checkpoint.world)
    facts = {name: getattr(checkpoint, name) for name in FACTS}
    facts["history"] = [[k, asdict(evaluation)] for k, evaluation in checkpoint.history]
    facts["suspects"] = [list(suspect) for suspect in checkpoint.suspects]
    return {name: _plain(name, value) for name, value in values.items()}, facts


def unpacked(
    arrays: Arrays,
    facts: Mapping[str, Any],
    algorithm: Algorithm,
    device: str = "cpu",
    like: Params | None = None,
) -> Checkpoint:
    """The checkpoint that `packed` turned into these; one line where its weights are not those of
    the model `like`.
    """
    state = algorithm.init(_params(arrays, "state.params", device))
    state = replace(
        state, **{one.name: _params(arrays, f"state.{one.name}", device) for one in fields(state)}
    )
    if like is not None and _form(state.params) != _form(like):
        raise AutoFLError(
            f"the checkpoint cannot be used: its weights are not those of the model; {ANEW}"
        )
    world: dict[str, Any] = dict(group(arrays, "world"))
    world |= {name: torch.from_numpy(world[name]).to(device) for name in world if name[:3] == "ue."}
    return Checkpoint(
        memory=group(arrays, "planner"),
        state=state,
        held=_params(arrays, "held", device) or None,
        history=tuple((k, Evaluation(**metrics)) for k, metrics in facts["history"]),
        world=world,
        suspects=tuple((ue, ratio) for ue, ratio in facts["suspects"]),
        round=int(facts["round"]),
        sim_time=float(facts["sim_time"]),
        message=None if facts["message"] is None else float(facts["message"]),
        stop=facts["stop"],
    )


def _form(params: Params) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """What a model is apart from its numbers."""
    return {name: (p.shape, p.dtype) for name, p in params.items()}


def _named(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise AutoFLError(
            f"{prefix}: a {type(values).__name__}, not tensors by name; no checkpoint can hold it"
        )
    return {f"{prefix}.{name}": value for name, value in values.items()}


def _plain(name: str, value: Any) -> NDArray[Any]:
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise AutoFLError(f"{name}: {array.dtype} values, not numbers; no checkpoint can hold them")
    return array


def _params(arrays: Arrays, prefix: str, device: str) -> Params:
    return {
        name: torch.from_numpy(array).to(device) for name, array in group(arrays, prefix).items()
    }
