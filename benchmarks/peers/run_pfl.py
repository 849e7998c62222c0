"""pfl-research: its `FederatedAveraging` on its `SimulatedBackend`, users as
`PyTorchTensorDataset`.

pfl-research ships Reptile, but no Per-FedAvg. Ours is a subclass of its `FederatedAveraging` with
another train step, as its FedProx is. A user's data set is what the user draws that round from a
pool in memory; users are taken by the `minimize_reuse` sampler pfl recommends, its `random` one may
take a user twice in a round.
"""

from importlib.metadata import version

import numpy as np
import torch
from common import Clock, arguments, demand, read_work, report
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch_step import Net, meta_gradient, thirds


class Model(Net):
    def metrics(self, x, y):  # pfl asks for it, and evaluates in round 0, which warms up
        return {}


def meta_step(model, optimizer, batch, train_kwargs, train_step_args, inner_lr):
    for p, g in zip(
        model.parameters(), meta_gradient(model, *thirds(*batch), inner_lr), strict=True
    ):
        p.grad = g
    optimizer.step()


class PerFedAvg(FederatedAveraging):
    def __init__(self, inner_lr):
        super().__init__()
        self.inner_lr = inner_lr

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        model.do_multiple_epochs_of(
            user_dataset, central_context.model_train_params, meta_step, inner_lr=self.inner_lr
        )
        return model.get_model_difference(initial_model_state), Metrics()


class Tick(TrainingProcessCallback):
    def __init__(self, clock):
        self.clock = clock

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.clock.tick()
        return False, Metrics()


def run(work, algorithm, num_rounds, clock):
    """Runs the rounds; returns the weights after them."""
    x, y, num = torch.from_numpy(work.x), torch.from_numpy(work.y), work.num_drawn(algorithm)
    rng = np.random.default_rng(0)

    def draw(ue):
        index = torch.from_numpy(rng.choice(work.owned(ue), num, replace=False))
        return PyTorchTensorDataset((x[index], y[index]), user_id=str(ue))

    data = FederatedDataset(draw, get_user_sampler("minimize_reuse", list(range(work.num_ue))))
    module = Model(work.weights)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    learner = FederatedAveraging() if algorithm == "fedavg" else PerFedAvg(work.inner_lr)
    learner.run(
        NNAlgorithmParams(
            central_num_iterations=num_rounds,
            evaluation_frequency=10**9,
            train_cohort_size=work.selected,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.outer_lr, local_batch_size=None
        ),
        callbacks=[Tick(clock)],
        send_metrics_to_platform=False,
    )
    return module.weights()


options = arguments(__doc__)
torch.set_num_threads(options.threads)
work = read_work(options.work)
clock = Clock(options.warmup)
if options.check:
    module, index = Net(work.weights), torch.from_numpy(work.owned(0)[: 3 * work.samples])
    step = meta_gradient(
        module,
        *thirds(torch.from_numpy(work.x)[index], torch.from_numpy(work.y)[index]),
        work.inner_lr,
    )
    demand(
        work,
        "client per-fedavg",
        [w - work.outer_lr * g.numpy() for w, g in zip(work.weights, step, strict=True)],
    )
    for name in ("fedavg", "per-fedavg"):
        demand(work, f"round {name}", run(work.constant(), name, 1, clock))
else:
    run(work, options.algorithm, clock.warmup + options.rounds, clock)
    report(
        "pfl-research",
        version("pfl"),
        options,
        "step written by us: exact",
        clock,
        "FedAvg as shipped, Per-FedAvg a subclass of it",
    )
