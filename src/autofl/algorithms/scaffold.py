"""SCAFFOLD: control variates against the drift of local steps (Karimireddy et al. 2020)."""

from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch.func import grad

from autofl.algorithms.base import NOT_NEGATIVE, Decaying, State, minus, num_steps, step_of
from autofl.data.batch import MetaBatch
from autofl.models import Loss, Params
from autofl.ranges import Range

PREFIX = "control."
"""A control variate travels beside its weight under this prefix, so an update has twice the
numbers.
"""


@dataclass(frozen=True)
class ScaffoldState(State):
    """The model and the server's control variate c."""

    control: Params

    @property
    def sent(self) -> Params:
        return {**self.params, **{f"{PREFIX}{name}": c for name, c in self.control.items()}}


@dataclass(frozen=True)
class Scaffold(Decaying):
    """Local steps corrected by the server's and the UE's own control variate, c and c_i.

        y <- y - beta (g(y; D) - c_i + c), tau times;    c_i' = c_i - c + (w - y) / (tau beta)

    A UE sends y and c + (c_i' - c_i); the server takes the mean of y, and moves c by (|A_k|/n)
    times the mean change.

    Note:
        The paper's |S|/n is the share of UEs that were heard in this round; here it is |A_k|/n,
        which is the same where everybody selected is decoded.
    """

    outer_lr: Annotated[float, Range(gt=0)]  # beta
    lr_decay: Annotated[float, NOT_NEGATIVE] = field(default=0.0, kw_only=True)
    participation: Annotated[
        float, Range(gt=0, le=1), "share of the UEs selected in a round; default: the run's"
    ] = 0.25

    def init(self, params: Params) -> ScaffoldState:
        return ScaffoldState(params, {name: torch.zeros_like(p) for name, p in params.items()})

    def client_init(self, sent: Params) -> Params:
        return {name: torch.zeros_like(c) for name, c in _control(sent).items()}

    def client_step(
        self, loss: Loss, sent: Params, batch: MetaBatch, own: Params
    ) -> tuple[Params, Params]:
        control = _control(sent)
        params = _weights(sent)
        correction = minus(control, 1.0, own)
        local = params
        tau = num_steps(batch)
        for step in range(tau):
            corrected = minus(grad(loss)(local, step_of(batch, step).joined()), -1.0, correction)
            local = minus(local, self.outer_lr, corrected)
        moved = minus(params, 1.0, local)
        after = {name: p / (tau * self.outer_lr) - correction[name] for name, p in moved.items()}
        change = minus(after, 1.0, own)
        sent_up = {f"{PREFIX}{name}": c + change[name] for name, c in control.items()}
        return {**local, **sent_up}, after

    def client_update(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """What a UE that remembers nothing sends."""
        return self.client_step(loss, params, batch, self.client_init(params))[0]

    def server_update(self, state: State, average: Params) -> ScaffoldState:
        assert isinstance(state, ScaffoldState)
        change = minus(_control(average), 1.0, state.control)
        control = minus(state.control, -self.participation, change)
        return replace(state, params=_weights(average), control=control)


def _control(sent: Params) -> Params:
    return {name.removeprefix(PREFIX): c for name, c in sent.items() if name.startswith(PREFIX)}


def _weights(sent: Params) -> Params:
    return {name: p for name, p in sent.items() if not name.startswith(PREFIX)}
