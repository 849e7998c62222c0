"""Flower's simulation engine (Ray) with its Message API: the strategy `FedAvg` as shipped, the
client in `flower_client.py`.

Flower ships no Per-FedAvg; ours is the train handler of the ClientApp. One thread is one Ray actor
with one PyTorch thread. The rounds are run by `run_simulation`, the same engine `flwr run` starts,
without the SuperLink and the installation of the app before it, so the start is the shortest one. A
round includes the waiting of Flower's queues: the engine looks for new messages every 0.1 s.
"""

import os
from importlib.metadata import version

from common import Clock, arguments, demand, read_work, report

options = arguments(__doc__)
os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}

import flower_client  # noqa: E402
import psutil  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from torch_step import Net  # noqa: E402


def memory_mb():
    """Of this process and all it started, shared pages counted once."""
    me = psutil.Process()
    return (
        sum(process.memory_full_info().pss for process in [me, *me.children(recursive=True)])
        / 2**20
    )


def run(work, algorithm, num_rounds, clock, constant=False):
    """Runs the rounds; returns the weights after them and the memory used."""
    app, outcome = ServerApp(), []

    @app.main()
    def main(grid, context):
        strategy = FedAvg(
            fraction_train=work.selected / work.num_ue,
            fraction_evaluate=0.0,
            min_available_nodes=work.num_ue,
        )
        config = {"work": str(options.work.resolve()), "algorithm": algorithm, "constant": constant}
        result = strategy.start(
            grid,
            ArrayRecord(Net(work.weights).state_dict()),
            num_rounds,
            train_config=ConfigRecord(config),
            evaluate_fn=lambda server_round, arrays: clock.tick() if server_round else None,
        )
        outcome.extend([result.arrays.to_numpy_ndarrays(), memory_mb()])

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": options.threads}}
    run_simulation(app, flower_client.app, work.num_ue, backend_config=resources)
    return outcome


work = read_work(options.work)
clock = Clock(options.warmup)
if options.check:
    for name in ("fedavg", "per-fedavg"):
        weights, _ = run(work.constant(), name, 1, clock, constant=True)
        demand(work, f"round {name}", weights)
else:
    _, memory = run(work, options.algorithm, clock.warmup + options.rounds, clock)
    report(
        "flower",
        version("flwr"),
        options,
        "step written by us: exact",
        clock,
        "FedAvg as shipped; threads are Ray actors; memory is that of all processes after the last round",
        memory,
    )
