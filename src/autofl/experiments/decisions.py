"""What is decided beyond the UEs' own parts of a plan, and why, a line each: the same words by
every door.
"""

from typing import NamedTuple

import numpy as np

from autofl.config import Settings
from autofl.config.settings import TABLE_I
from autofl.experiments.cell import RoundPlan
from autofl.experiments.steps import DECAY, LONGEST
from autofl.registry import find

PLANNED = {"steps": "local steps", "samples": "samples", "bits": "bits", "band": "band", "frequency": "CPU frequency",
           "admission": "who takes part"}  # fmt: skip
"""Decisions of the joint planner that a setting of its own switches off."""


class Decision(NamedTuple):
    """What was decided, and why; for a value that is fixed, who fixed it."""

    decision: str
    value: str
    reason: str


def decisions_of(settings: Settings, made: RoundPlan | None = None) -> list[Decision]:
    """The decisions of resolved settings; with a planned round also what they come to in it.

    It goes by resolved values alone, so a run that is read back, resumed or deployed has the same
    reasons. Without the joint planner only step sizes can be decided.
    """
    learning = settings.learning
    joint = settings.planner.name == "joint"
    by_rule = "auto" in (
        learning.inner_lr,
        learning.outer_lr,
        learning.lr_decay,
        learning.grad_clip,
    )
    steps = [_local_step(settings), _alpha(settings)] if joint or by_rule else []
    whole = [
        _who(settings, made),
        _band(settings),
        _downlink(settings, made),
        _planned(settings, made),
    ]
    return [*whole, *steps] if joint else steps


def _who(settings: Settings, made: RoundPlan | None) -> Decision:
    count = settings.cell.count
    asked = settings.simulation.num_selected
    shown = f"{asked} of {count} asked"
    planned = asked if made is None else made.round.cell.num_ue
    if planned > asked:
        shown += f"; the plan shows all {planned}, in {planned / asked:g} times the band of a round"
    elif made is not None:
        taking_part = int(made.round.plan.feasible.sum())
        shown += f"; {taking_part} of {planned} take part in the planned round"
    if asked == settings.most_asked:
        sample = "all" if asked == count else "a sample of so many"
        return Decision(
            "UEs",
            shown,
            f"{sample}, unless simulation.num_selected is set; who delays the others is left out",
        )
    return Decision("UEs", shown, "set by you (simulation.num_selected)")


def _band(settings: Settings) -> Decision:
    total = settings.cell.total_bandwidth
    asked = settings.simulation.num_selected
    if total is None:
        own = settings.usual_band(asked)
        return Decision(
            "band",
            f"{1e-6 * own:.4g} MHz",
            f"that of the {asked} UEs set by you (cell.bandwidth of each)",
        )
    shown = f"{1e-6 * total:.4g} MHz"
    if np.isclose(total, settings.usual_band(), rtol=1e-9):
        usual = settings.usual_number
        return Decision(
            "band",
            shown,
            f"that of {usual} UEs, whoever takes part, unless cell.total_bandwidth is set",
        )
    return Decision("band", shown, "set by you (cell.total_bandwidth)")


def _downlink(settings: Settings, made: RoundPlan | None) -> Decision:
    if settings.decides_downlink:
        choice = None if made is None else made.downlink_choice()
        if choice is None:
            return Decision("downlink", "decided in every round", "the most progress per second")
        shown = f"{choice['bits_per_weight']:.3g} bits a weight"
        too_short = "it is too short for a compressed message to pay"
        why = too_short if choice["lost"] == 0.0 else "the most progress per second"
        return Decision("downlink", shown, f"{why}; decided in every round")
    if settings.downlink.name != "none":
        return Decision("downlink", settings.downlink.name, "set by you (downlink)")
    free = settings.cell.downlink_power is None
    why = (
        "it takes no time here (cell.downlink_power is not set)"
        if free
        else "set by you (downlink.name)"
    )
    return Decision("downlink", "32 bits a weight", why)


def _planned(settings: Settings, made: RoundPlan | None) -> Decision:
    """Each UE's own part of a plan, which its table shows."""
    off = [words for name, words in PLANNED.items() if settings.planner.given.get(name) is False]
    reason = "the most progress per second"
    if off:
        reason += f"; {', '.join(off)}: set by you (planner)"
    shown = "by the planner in every round"
    if made is not None and (here := made.round.plan.feasible).any():
        plan = made.round.plan
        steps, samples, bits = (
            np.median(x[here]) for x in (plan.local_steps, plan.num_samples, plan.bits_per_weight)
        )
        shown = f"{steps:g} steps of {samples:g} samples, {bits:.3g} bits a weight (medians)"
    return Decision("steps, samples, bits", shown, reason)


def _local_step(settings: Settings) -> Decision:
    learning = settings.learning
    name = settings.algorithm
    known = name in ("per-fedavg", "fedavg")  # without loading PyTorch
    has_rule = known or "longest_step" in find("algorithm", name).settings
    decay = DECAY if learning.lr_decay == "auto" else learning.lr_decay or 0.0
    falls = "sqrt(k)" if decay == 1.0 else f"sqrt(1 + {decay:g} (k - 1))"
    over = f" / {falls} in round k" if decay else ""
    of_length = f"{LONGEST:g} of the model's length"
    because = (
        "" if learning.lr_decay == "auto" or not decay else "; decay set by you (learning.lr_decay)"
    )

    if learning.outer_lr == "auto" and has_rule:
        return Decision(
            "local step", of_length + over, f"needs to know nothing of loss and data{because}"
        )
    if learning.outer_lr == "auto":
        _, beta = TABLE_I["mnist"]
        return Decision(
            "local step",
            f"beta = {beta:g}{over}",
            f"Table I, since {name} has no rule{because}",
        )
    bound = f", at most {of_length}" if learning.grad_clip == "auto" and has_rule else ""
    return Decision(
        "local step",
        f"beta = {learning.outer_lr:g}{bound}{over}",
        f"set by you (learning.outer_lr){because}",
    )


def _alpha(settings: Settings) -> Decision:
    alpha = settings.learning.inner_lr
    if alpha == "auto":
        return Decision(
            "alpha",
            "measured by each UE",
            "the least loss on training samples it does not adapt with",
        )
    return Decision("alpha", f"{alpha:g}", "set by you (learning.inner_lr)")
