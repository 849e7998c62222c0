"""The state of a deployment: processes, devices, runs, and who is left out of the newest run and
why.
"""

from pathlib import Path
from typing import Any

import numpy as np

from autofl.config.load import resume_words
from autofl.deploy.commands import can_resume
from autofl.deploy.folder import LINK, Deployment, answers
from autofl.deploy.lease import is_held
from autofl.errors import AutoFLError
from autofl.records import Run, is_run, read_run


def status(folder: Path) -> dict[str, Any]:
    """What runs, according to the processes and the SuperLink, not to our records of what was
    started.
    """
    site = Deployment(folder)
    alive = site.alive()
    is_there = alive.get("superlink", site.is_prepared and answers(*site.link()))
    state: dict[str, Any] = {
        "folder": str(folder),
        "up": is_there and all(alive.values()),
        "processes": alive,
    }
    if is_there:
        try:
            state["online"] = site.online()
            runs = site.ask(["flwr", "list", LINK])["runs"]
            state["runs"] = [{"id": entry["run-id"], "status": entry["status"]} for entry in runs]
        except AutoFLError as error:
            state["problem"] = str(error)
    elif site.is_prepared or "superlink" in alive:
        state["problem"] = site.unanswered
    state["busy"] = is_held(folder)
    newest = Path(site.state.out)
    if site.state.out and is_run(newest):
        try:
            run = read_run(newest)
            state["newest"] = progress(run)
            if can_resume(newest) and not state["busy"]:
                state["newest"]["resume"] = f"{site.running} {resume_words(newest, run.config)}"
        except AutoFLError as error:
            state["newest"] = {"folder": str(newest), "problem": str(error)}
    return state


def progress(run: Run) -> dict[str, Any]:
    """The progress of a run, and for each device how many updates were used and not used, and the
    last reason.
    """
    devices: dict[int, dict[str, Any]] = {}
    # There are none before the first round.
    asked = run.devices or {"ue": np.empty(0), "outcome": np.empty(0)}
    for ue, outcome in zip(asked["ue"].tolist(), asked["outcome"].tolist(), strict=True):
        one = devices.setdefault(int(ue), {"used": 0, "left_out": 0, "last": "ok"})
        one["used"] += outcome == "ok"
        one["left_out"] += outcome != "ok"
        one["last"] = str(outcome)
    said = run.manifest
    rounds = run.rounds["round"].tolist()
    return {
        "folder": str(run.folder),
        "status": said.get("status"),
        "problem": said.get("problem"),
        "stop": said.get("stop"),
        "suspects": said.get("suspects", []),
        "notes": said.get("notes", []),
        "rounds": int(rounds[-1]) if rounds else said.get("rounds", 0),
        "of": run.config.get("stop", {}).get("rounds"),
        "devices": {ue: devices[ue] for ue in sorted(devices)},
        "asked": said.get("devices"),  # how, and what that took beside computing and sending
        "overhead": said.get("overhead"),
    }
