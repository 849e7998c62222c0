"""The ClientApp of `run_flower.py`: a module of its own, so that Ray's actors import it instead of
unpickling it.
"""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from common import Work, read_work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch_step import Net, meta_gradient, thirds

app = ClientApp()


@cache
def actor(path: str, constant: bool) -> tuple[Work, Net, np.random.Generator]:
    """What an actor keeps between messages: the data in memory, a model, its random numbers."""
    torch.set_num_threads(1)
    work = read_work(Path(path))
    return work.constant() if constant else work, Net(work.weights), np.random.default_rng()


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    work, model, rng = actor(config["work"], config["constant"])
    owned = work.owned(context.node_config["partition-id"])
    index = rng.choice(owned, work.num_drawn(config["algorithm"]), replace=False)
    x, y = torch.from_numpy(work.x[index]), torch.from_numpy(work.y[index])

    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    w = list(model.parameters())
    if config["algorithm"] == "fedavg":
        step = torch.autograd.grad(model.loss(x, y), w)
    else:
        step = meta_gradient(model, *thirds(x, y), work.inner_lr)
    with torch.no_grad():
        torch._foreach_add_(w, step, alpha=-work.outer_lr)

    reply = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(index)}),
    }
    return Message(content=RecordDict(reply), reply_to=message)
