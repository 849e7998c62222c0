"""A checkpoint of the loop as arrays and facts, and back: what a run folder keeps, and what UEs
remember.
"""

import reprlib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from autofl.algorithms import Algorithm, State
from autofl.engines import Memories
from autofl.errors import AutoFLError
from autofl.models import Params
from autofl.records import Evaluation
from autofl.records.tables import MOST_VALUE
from autofl.rounds.downlink import Reference
from autofl.rounds.loop import Checkpoint

Arrays = Mapping[str, NDArray[Any]]
QUALITY = {field.name for field in fields(Evaluation)}
ANEW = "to begin the run anew, give its command with --force, or remove its folder"


def packed(checkpoint: Checkpoint) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """All of a checkpoint: arrays by name, and facts that JSON holds to the bit."""
    arrays = {f"planner.{name}": _plain(held, name) for name, held in checkpoint.memory.items()}
    for state_field in fields(checkpoint.state):
        arrays |= _named(f"state.{state_field.name}", getattr(checkpoint.state, state_field.name))
    facts: dict[str, Any] = {
        "round": checkpoint.round,
        "sim_time": checkpoint.sim_time,
        "history": [(k, asdict(evaluation)) for k, evaluation in checkpoint.history],
    }
    if checkpoint.reference is not None:
        arrays |= _named("reference", checkpoint.reference.params)
        facts["downlink_bits"] = checkpoint.reference.bits
    return arrays, facts


def unpacked(
    arrays: Arrays,
    facts: Mapping[str, Any],
    algorithm: Algorithm,
    device: str = "cpu",
    like: Params | None = None,
) -> Checkpoint:
    """The checkpoint that `packed` turned into these; one line where they are not of that kind, or
    not `like` a model.

    A file with the right sum may be of anybody.
    """
    _check_facts(facts)
    state = _state_of(arrays, algorithm, device)
    reference = None
    if "downlink_bits" in facts:
        reference = Reference(_params(arrays, "reference", device), facts["downlink_bits"])
    fits = like is None or _form(state.params) == _form(like)
    if not fits or (reference is not None and _form(reference.params) != _form(state.sent)):
        raise AutoFLError(
            f"the checkpoint cannot be used: its weights are not those of the model; {ANEW}"
        )
    return Checkpoint(
        round=facts["round"],
        state=state,
        memory=group(arrays, "planner"),
        sim_time=facts["sim_time"],
        history=tuple((int(k), Evaluation(**metrics)) for k, metrics in facts["history"]),
        reference=reference,
    )


def _form(params: Params) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """What a model is apart from its numbers."""
    return {name: (p.shape, p.dtype) for name, p in params.items()}


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Facts of the right kinds, so that nothing later stumbles over them."""
    known = {name: facts.get(name, 0.0) for name in ("downlink_bits", "host_time")}
    for name, value in {**known, "sim_time": facts.get("sim_time")}.items():
        if type(value) not in (int, float) or not 0.0 <= value <= MOST_VALUE:
            raise AutoFLError(
                f"the checkpoint cannot be used: its {name} is {reprlib.repr(value)}; {ANEW}"
            )
    k = facts.get("round")
    stop = facts.get("stop")
    history = facts.get("history")
    if type(k) is not int or k < 0 or not isinstance(stop, str | None):
        raise AutoFLError(
            f"the checkpoint cannot be used: its round or reason to stop is none; {ANEW}"
        )
    suspects = facts.get("suspects", [])
    if not isinstance(suspects, list) or not all(_is_suspect(entry) for entry in suspects):
        raise AutoFLError(f"the checkpoint cannot be used: its suspects are none; {ANEW}")
    if not isinstance(history, list) or not all(_is_evaluated(entry, k) for entry in history):
        raise AutoFLError(f"the checkpoint cannot be used: its evaluations are none; {ANEW}")


def _is_suspect(entry: object) -> bool:
    """Whether an entry is a UE and how many times the median its update was long."""
    return (
        isinstance(entry, list | tuple)
        and len(entry) == 2
        and type(entry[0]) is int
        and type(entry[1]) is float
    )


def _is_evaluated(entry: object, last: int) -> bool:
    """Whether an entry of a history is a round and the quality of its model."""
    if not isinstance(entry, list | tuple) or len(entry) != 2:
        return False
    k, metrics = entry
    if type(k) is not int or not 0 <= k <= last or not isinstance(metrics, dict):
        return False
    return set(metrics) <= QUALITY and all(
        type(value) in (int, float) for value in metrics.values()
    )


def packed_memory(memory: Memories) -> dict[str, NDArray[Any]]:
    """What the UEs remember."""
    arrays: dict[str, NDArray[Any]] = {}
    for (purpose, ue), own in memory.items():
        arrays |= _named(f"ue.{purpose}.{ue}", own)
    return arrays


def unpacked_memory(arrays: Arrays, device: str = "cpu") -> Memories:
    """The memories that `packed_memory` turned into these."""
    owned: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
    for name, array in group(arrays, "ue").items():
        purpose, ue, own = name.split(".", 2)
        owned.setdefault((purpose, int(ue)), {})[own] = torch.from_numpy(array).to(device)
    return owned


def group(arrays: Arrays, prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays of this prefix, without it."""
    return {
        name[len(prefix) + 1 :]: array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}.")
    }


def _named(prefix: str, params: Params) -> dict[str, NDArray[Any]]:
    if not isinstance(params, Mapping):
        raise AutoFLError(
            f"{prefix}: a {type(params).__name__}, not tensors by name; no checkpoint can hold it"
        )
    return {f"{prefix}.{name}": _plain(p, f"{prefix}.{name}") for name, p in params.items()}


def _plain(held: Any, name: str) -> NDArray[Any]:
    array = held.detach().cpu().numpy() if isinstance(held, torch.Tensor) else np.asarray(held)
    if array.dtype.kind not in "biuf":
        raise AutoFLError(f"{name}: {array.dtype} values, not numbers; no checkpoint can hold them")
    return array


def _params(arrays: Arrays, prefix: str, device: str) -> dict[str, torch.Tensor]:
    return {
        name: torch.from_numpy(array).to(device) for name, array in group(arrays, prefix).items()
    }


def _state_of(arrays: Arrays, algorithm: Algorithm, device: str) -> State:
    """The server's state, every field of it."""
    state = algorithm.init(_params(arrays, "state.params", device))
    kept = {
        part: _params(arrays, f"state.{part}", device)
        for part in (one.name for one in fields(state))
    }
    return replace(state, **kept)
