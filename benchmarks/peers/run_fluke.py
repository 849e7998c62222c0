"""fluke: its `CentralizedFL` (FedAvg) and `PerFedAVG` as shipped, clients with a `FastDataLoader`
of their own samples.

fluke's Per-FedAvg knows two modes, "FO" (first-order) and "HF"; we run "HF", whose Hessian product
is a finite difference, on three batches as Per-FedAvg asks. It is not the step of the paper. The
model has moved to w' = w - alpha g(w; D_in) when the outer step is taken and is not put back: fluke
returns w' - beta (I - alpha H(w'; D_h)) g(w'; D_o). --check prints how far that and the finite
difference take it from the exact step on its data, one sample repeated; it is no error bar for
other data. fluke asks for torchvision, wandb,
clearml and opacus, none of which a round touches: they are left out of the environment
    (`setup.sh`).
"""

from importlib.metadata import version

import torch
from common import Clock, arguments, demand, difference, read_work, report
from fluke import FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.algorithms.per_fedavg import PerFedAVG, PerFedAVGClient, PerFedAVGOptimizer
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from torch_step import Net


class Tick:
    """An observer of the rounds."""

    def __init__(self, clock):
        self.clock = clock

    def end_round(self, round):
        self.clock.tick()


def run(work, algorithm, num_rounds, clock):
    """Runs the rounds; returns the weights after them."""
    x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
    meta = algorithm == "per-fedavg"
    optimizer = (
        {"name": PerFedAVGOptimizer, "lr": work.inner_lr}
        if meta
        else {"name": "SGD", "lr": work.outer_lr}
    )
    clients = []
    for ue in range(work.num_ue):
        own = torch.from_numpy(work.owned(ue))
        own = own[: len(own) // work.samples * work.samples]  # no batch shorter than the others
        # One step a round: FedAvg's client stops after a single batch, Per-FedAvg's counts
        # `n_batches` steps.
        data = FastDataLoader(
            x[own],
            y[own],
            num_labels=10,
            batch_size=work.samples,
            shuffle=True,
            single_batch=not meta,
        )
        data.n_batches = 1
        client = PerFedAVGClient if meta else Client
        clients.append(
            client(
                index=ue,
                train_set=data,
                test_set=None,
                optimizer_cfg=OptimizerConfigurator(optimizer),
                loss_fn=torch.nn.CrossEntropyLoss(),
                local_epochs=1,
                **({"mode": "HF", "beta": work.outer_lr} if meta else {}),
            )
        )
    server = Server(Net(work.weights), None, clients)
    learner = (PerFedAVG if meta else CentralizedFL)(
        work.num_ue, None, {}, clients=clients, server=server
    )
    learner.attach(Tick(clock))
    learner.run(num_rounds, work.selected / work.num_ue)
    return server.model.weights()


options = arguments(__doc__)
torch.set_num_threads(options.threads)
FlukeENV().set_seed(0)
FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
work = read_work(options.work)
clock = Clock(options.warmup)
if options.check:
    demand(work, "round fedavg", run(work.constant(), "fedavg", 1, clock))
    difference(work, "round per-fedavg", run(work.constant(), "per-fedavg", 1, clock))
else:
    run(work, options.algorithm, clock.warmup + options.rounds, clock)
    report(
        "fluke",
        version("fluke-fl"),
        options,
        "shipped: finite-difference Hessian, outer step at the wrong point",
        clock,
        "all as shipped; Per-FedAvg in mode HF",
    )
