"""The models UEs use where the algorithm decides that, instead of one gradient step from the global
one.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from autofl.algorithms import Algorithm, Personal, is_stateful
from autofl.data.batch import Batch
from autofl.models import Params, loss_of


class PersonalModels(NamedTuple):
    """The model of one UE from the global one, its adaptation samples and what it remembers."""

    of: Callable[[Params, Batch, Params], Params]
    first: Params  # what a UE remembers before its first round


def personal_models(
    algorithm: Algorithm, model: nn.Module, params: Params
) -> PersonalModels | None:
    """Which models are evaluated as adapted, where the algorithm decides that."""
    if not isinstance(algorithm, Personal):
        return None
    loss = loss_of(model)
    sent = algorithm.init(params).sent
    first = algorithm.client_init(sent) if is_stateful(algorithm) else {}
    return PersonalModels(
        lambda params, batch, own: algorithm.personal(loss, params, batch, own), first
    )
