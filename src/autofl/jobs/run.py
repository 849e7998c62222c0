"""A run on disk: played into its folder, with a manifest that says what it is and where its parts
came from.
"""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autofl.config import Settings, dump_settings
from autofl.core.simulation import Simulation
from autofl.engines import use_machine
from autofl.experiments.build import simulation_from
from autofl.experiments.decisions import decisions_of
from autofl.jobs.cluster import spread
from autofl.jobs.recording import OnRound, write_run
from autofl.models import num_weights
from autofl.records import Run
from autofl.registry import find
from autofl.units import IntArray
from autofl.version import __version__, commit_of_source


def run(
    settings: Settings,
    folder: Path | str,
    *,
    on_round: OnRound | None = None,
    ray: str | None = None,
    resume: bool = False,
    wait: bool = False,
    keep: bool = False,
    **own: Any,
) -> Run:
    """Simulate these settings into a run folder and read it back.

    `own` takes the objects of `simulation_from`; `ray` is the address of a cluster that shares the
    UEs' work. An interrupted or failed run keeps its rounds, its last weights and a checkpoint, and
    its manifest says so; for `resume`, `wait` and `keep` see `write_run`.
    """
    settings = settings.resolved()
    use_machine(settings.simulation.threads)
    if ray is None:
        sim = simulation_from(settings, **own)
    else:  # the machines of a cluster compute on their CPUs, and so does this one
        here = settings.simulation.model_copy(update={"device": "cpu"})
        sim = spread(simulation_from(settings.model_copy(update={"simulation": here}), **own), ray)
    text = dump_settings(settings)
    about = manifest_of(settings, sim, own)
    return write_run(sim, folder, text, about, on_round, resume=resume, wait=wait, keep=keep)


def manifest_of(settings: Settings, sim: Simulation, own: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is and where its parts came from."""
    given = sorted(
        name for name in own if name not in ("data", "dataset") and own[name] is not None
    )
    said = {"algorithm": settings.arm_name, "label": settings.title}
    if own.get("algorithm") is not None:
        said = {"algorithm": repr(own["algorithm"]), "label": type(own["algorithm"]).__name__}
    return {
        **said,
        "seed": settings.seed,
        "own": given,
        "parts": origins_of(settings) | {name: {"name": repr(own[name])} for name in given},
        "decisions": [list(row) for row in decisions_of(settings)],
        **facts_of(sim),
    }


def origins_of(settings: Settings) -> dict[str, dict[str, str]]:
    """Where the parts came from that settings name, by kind; the compressor of the downlink goes by
    its section.
    """
    sections = [
        settings.channel,
        settings.link,
        settings.selection,
        settings.planner,
        settings.aggregator,
    ]
    sections.append(settings.model)
    named = [find("data", settings.data.name), find("partition", settings.data.partition)]
    parts = [find("algorithm", settings.algorithm), *named, *(section.part for section in sections)]
    ways = {
        "compressor": settings.compressor,
        "downlink": settings.downlink,
        "attack": settings.attack,
    }
    named_ways = {
        way: section.part.origin() for way, section in ways.items() if section.name != "none"
    }
    return {part.kind: part.origin() for part in parts} | named_ways


def facts_of(sim: Simulation) -> dict[str, Any]:
    """What a simulation is, for a manifest."""
    return {
        "data": sim.data.name,
        "num_ue": sim.cell.num_ue,
        "num_weights": num_weights(sim.params),
        "data_size": size_range(sim.data.partition.train_size),
        "engine": sim.engine_name,
        "device": torch.cuda.get_device_name() if sim.data.x.is_cuda else "cpu",
        **({} if sim.lies is None else {"liars": sim.lies.ue.tolist()}),
        **machine_facts(),
    }


def size_range(size: IntArray) -> list[int]:
    """Smallest, median and largest training set."""
    return [int(size.min()), int(np.median(size)), int(size.max())]


def machine_facts() -> dict[str, Any]:
    """Version, commit and machine, for a manifest."""
    return {
        "version": __version__,
        "commit": commit_of_source(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
    }
