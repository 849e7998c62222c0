"""The fast engine serves what it knows by exact type; whatever else is trained and judged as it is."""

import gc
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

from autofl.algorithms import FedAvg, PerFedAvg
from autofl.data import Dataset
from autofl.data.federated import federate
from autofl.engines import make_engine, pick_engine
from autofl.engines.low_rank import low_rank_layers
from autofl.evaluation import Evaluator
from autofl.models import lenet5, mlp, outputs, params_of
from reference.updates import ALGORITHMS, NUM_SAMPLES, UE

pytestmark = pytest.mark.slow

WEIGHT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
SHAPE = {1: (784,), 2: (28, 28), 3: (1, 28, 28)}


class Doubled(nn.Linear):
    def forward(self, x):
        return 2.0 * super().forward(x)


class Backwards(nn.Sequential):
    """Not what a Sequential does."""

    def forward(self, x):
        return super().forward(x.flip(-1))


class Rectified(nn.ReLU):
    def forward(self, x):
        return torch.relu(x) - 1.0


class Halved(nn.Conv2d):
    def forward(self, x):
        return 0.5 * super().forward(x)


class Mean(nn.MaxPool2d):
    def forward(self, x):
        return nn.functional.avg_pool2d(x, 2)


class Leaky(nn.Flatten):
    def forward(self, x):
        return super().forward(x) + 1.0


def network(*middle, hidden=9):
    return nn.Sequential(nn.Linear(784, hidden), *(middle or (nn.Tanh(),)), nn.Linear(hidden, 10))


def images(*middle):
    return nn.Sequential(*(middle or (nn.Conv2d(1, 3, 5),)), nn.Flatten(), nn.LazyLinear(10))


def hooked(model, register, hook):
    getattr(model, register)(hook)
    return model


def with_forward(model):
    model[0].forward = lambda x: 3.0 * nn.functional.linear(x, model[0].weight, model[0].bias)
    return model


def with_weight_beside():
    model = network()
    model.register_parameter("beside", nn.Parameter(torch.ones(2)))
    return model


def with_part_inside():
    model = network()
    model[0].part = nn.ReLU()
    return model


def twice(module, x, y):
    return 2.0 * y


def halved_input(module, x):
    return (0.5 * x[0],)


ONE, TWO, THREE = 1, 2, 3
OTHERS = {
    "a linear subclass": (ONE, lambda: nn.Sequential(Doubled(784, 9), nn.Tanh(), nn.Linear(9, 10))),
    "a container subclass": (ONE, lambda: Backwards(nn.Linear(784, 10))),
    "a container subclass inside": (ONE, lambda: nn.Sequential(Backwards(nn.Linear(784, 9)), nn.Linear(9, 10))),
    "an activation subclass": (ONE, lambda: network(Rectified())),
    "a convolution subclass": (THREE, lambda: images(Halved(1, 3, 5))),
    "a pool subclass": (THREE, lambda: images(nn.Conv2d(1, 3, 5), Mean(2))),
    "a flatten subclass": (THREE, lambda: nn.Sequential(Leaky(), nn.Linear(784, 10))),
    "a forward hook": (ONE, lambda: hooked(network(), "register_forward_hook", twice)),
    "a forward hook inside": (ONE, lambda: network(hooked(nn.Tanh(), "register_forward_hook", twice))),
    "a hook before forward": (ONE, lambda: hooked(network(), "register_forward_pre_hook", halved_input)),
    "a forward of its own": (ONE, lambda: with_forward(network())),
    "old weight norm": (ONE, lambda: nn.Sequential(weight_norm(nn.Linear(784, 9)), nn.ReLU(), nn.Linear(9, 10))),
    "weight norm": (
        ONE, lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(784, 9)), nn.ReLU(), nn.Linear(9, 10)),
    ),
    "another threshold": (ONE, lambda: network(nn.Softplus(threshold=0.5))),
    "another beta": (ONE, lambda: network(nn.Softplus(beta=2))),
    "a weight in a container": (ONE, with_weight_beside),
    "a part inside a layer": (ONE, with_part_inside),
    "rows of images": (TWO, lambda: nn.Sequential(nn.Linear(28, 4), nn.ReLU(), nn.Flatten(), nn.Linear(112, 10))),
    "one row of many": (
        THREE, lambda: nn.Sequential(nn.Flatten(2), nn.Linear(784, 6), nn.Tanh(), nn.Flatten(), nn.Linear(6, 10)),
    ),
    "flattened in two": (TWO, lambda: nn.Sequential(nn.Flatten(1), nn.Linear(784, 6), nn.Flatten(), nn.Linear(6, 10))),
    "flattened rows of images": (
        THREE, lambda: nn.Sequential(nn.Flatten(1, 2), nn.Linear(28, 4), nn.Flatten(), nn.Linear(112, 10)),
    ),
    "flattened images behind a convolution": (
        THREE,
        lambda: nn.Sequential(nn.Conv2d(1, 3, 5), nn.Flatten(2), nn.Linear(576, 2), nn.Flatten(), nn.Linear(6, 10)),
    ),
    "a pool without channels": (TWO, lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(196, 10))),
}  # fmt: skip


def data_of(few_digits, federated, num_axes):
    shaped = Dataset("digits", few_digits.x.reshape(-1, *SHAPE[num_axes]), few_digits.y, 10)
    return federate(shaped, federated.partition, torch.float64)


def made(kind, few_digits, federated):
    """The model in float64 and the data of its shape."""
    num_axes, make = OTHERS[kind]
    data = data_of(few_digits, federated, num_axes)
    torch.manual_seed(5)
    model = make().double()
    model(data.gather(np.arange(2))[0])  # gives a lazy layer its weights
    return model, data


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_known_by_exact_type_runs_as_it_is(few_digits, federated, kind, name):
    model, data = made(kind, few_digits, federated)
    assert low_rank_layers(model) is None
    assert pick_engine("auto", model, ALGORITHMS[name]) in ("loop", "vmap")
    params = params_of(model, torch.float64)
    batches = data.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2)
    loop, vmap = (
        make_engine(engine, model)(ALGORITHMS[name], params, batches, UE).mean(WEIGHT)
        for engine in ("loop", "vmap")
    )
    for key, p in params.items():
        # A difference of gradients over a short step loses digits.
        far = 1e-6 if name == "finite-difference" else 1e-9
        torch.testing.assert_close(
            loop[key], vmap[key], rtol=far, atol=far * float((loop[key] - p).abs().max())
        )
    assert max(float((loop[key] - p).abs().max()) for key, p in params.items()) > 1e-5


@pytest.mark.parametrize("kind", OTHERS)
def test_it_is_judged_as_it_is_too(few_digits, federated, kind):
    model, data = made(kind, few_digits, federated)
    params = params_of(model, torch.float64)
    judged = Evaluator(inner_lr=0.1, train_samples=10_000).prepare(model, data, 1)(params)
    model.eval()
    loss = []
    for u in range(data.partition.num_ue):
        x, y = data.gather(data.partition.train_of(u))
        with torch.no_grad():
            loss.append(float(nn.functional.cross_entropy(model(x), y)))
    assert judged.train_loss == pytest.approx(np.mean(loss), rel=1e-10)
    assert judged.adapted_train_loss != judged.train_loss


def test_backward_hooks_step_aside_as_well():
    for register in ("register_full_backward_hook", "register_full_backward_pre_hook"):
        assert low_rank_layers(hooked(network(), register, lambda *all_of: None)) is None
        assert low_rank_layers(network(hooked(nn.Tanh(), register, lambda *all_of: None))) is None


def test_a_model_that_is_changed_is_recognised_anew(federated):
    model = network()
    algorithm = PerFedAvg(0.1, 0.1)
    assert pick_engine("auto", model, algorithm) == "low_rank"
    handle = model[1].register_forward_hook(twice)
    assert pick_engine("auto", model, algorithm) == "vmap"
    handle.remove()
    assert pick_engine("auto", model, algorithm) == "low_rank"
    model[0].bias.requires_grad_(False)
    assert pick_engine("auto", model, algorithm) == "vmap"


def test_a_recognised_model_is_not_kept_alive():
    model = mlp()
    assert low_rank_layers(model) is not None
    there = weakref.ref(model)
    del model
    gc.collect()
    assert there() is None


@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 28, 28)])
def test_the_papers_models_are_served_whatever_the_shape_of_samples(shape):
    assert low_rank_layers(mlp(shape)) is not None
    assert low_rank_layers(nn.Sequential(nn.Flatten(), nn.Linear(784, 10))) is not None
    if len(shape) == 3:
        assert low_rank_layers(lenet5(shape)) is not None


class ServersOwn(PerFedAvg):
    """The clients do what they always do."""

    def server_update(self, state, average):
        return state


class OwnDifference(PerFedAvg):
    def _difference(self, loss, params, direction, batch):
        return direction


class OwnStep(FedAvg):
    def client_update(self, loss, params, batch):
        return params


@dataclass(frozen=True)
class Borrowed:
    """Takes FedAvg's function without being one."""

    outer_lr: float = 0.1
    client_update = FedAvg.client_update


def test_an_algorithm_that_changes_any_part_of_the_update_steps_aside():
    model = mlp()
    assert pick_engine("auto", model, FedAvg(0.1)) == "low_rank"
    assert pick_engine("auto", model, ServersOwn(0.1, 0.1)) == "low_rank"
    for own in (OwnDifference(0.1, 0.1), OwnStep(0.1), Borrowed()):
        assert pick_engine("auto", model, own) == "vmap"
    for function in ("client_update", "meta_grad", "_difference"):
        changed = PerFedAvg(0.1, 0.1)
        object.__setattr__(changed, function, lambda *all_of: None)
        assert pick_engine("auto", model, changed) == "vmap"
    changed = FedAvg(0.1)
    object.__setattr__(changed, "client_update", lambda loss, params, batch: params)
    assert pick_engine("auto", model, changed) == "vmap"


def test_a_served_model_gives_the_outputs_of_the_model(federated):
    model = network(nn.Softplus(), nn.Identity(), nn.Dropout(0.5)).eval()
    assert low_rank_layers(model) is not None
    params = params_of(model, torch.float64)
    judged = Evaluator(inner_lr=0.0, train_samples=10_000, num_ue=8).prepare(model, federated, 1)(
        params
    )
    losses = [
        float(nn.functional.cross_entropy(outputs(model, params, x), y))
        for x, y in (federated.gather(federated.partition.train_of(u)) for u in range(8))
    ]
    assert judged.train_loss == pytest.approx(np.mean(losses), rel=1e-10)
