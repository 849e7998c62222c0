# %% [markdown]
# # AutoFL against an algorithm of your own
#
# Jupyter, VS Code and Spyder open this file as a notebook, a cell for each `# %%`. It also runs as a script:
# `python examples/notebook.py`, or with fewer rounds `python examples/notebook.py 20`.

# %%
import sys
from dataclasses import dataclass

from torch.func import grad

import autofl as fl
from autofl.algorithms import num_steps, step_of
from autofl.data.batch import MetaBatch
from autofl.models import Loss

ROUNDS = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 200
SEEDS = 5 if ROUNDS == 200 else 1

# %% [markdown]
# An algorithm of your own: FedProx. Each UE makes three gradient steps, one on each third of its samples, and is held
# near the global model by `mu`.


# %%
@dataclass(frozen=True)
class MyProx(fl.Averaging):
    lr: float
    mu: float

    def client_update(self, loss: Loss, params: fl.Params, batch: MetaBatch) -> fl.Params:
        w = params
        for step in range(num_steps(batch)):
            for third in step_of(batch, step):
                g = grad(loss)(w, third)
                w = {name: w[name] - self.lr * (g[name] + self.mu * (w[name] - params[name])) for name in w}
        return w


# %% [markdown]
# A cell, data, and what is compared: an arm is an algorithm with a planner.

# %%
cell = fl.Cell.disc(num_ue=20, radius=400, seed=1)
data = fl.load("mnist5k").federate(fl.by_labels(5), num_ue=20, seed=1)
arms = {
    "AutoFL": fl.Arm(fl.PerFedAvg(0.03, 0.07), fl.ExactPlanner(0.02)),
    "mine": fl.Arm(MyProx(0.07, mu=0.1), fl.FixedPlanner(40)),
}
runs = fl.compare(arms, cell, data, fl.mlp, rounds=ROUNDS, seeds=SEEDS)

# %% [markdown]
# A notebook shows what the last line of a cell gives.

# %%
runs.table(target=0.85)

# %%
runs.plot("sim_time", "adapted_accuracy")

# %% [markdown]
# A script prints it, and keeps the figure with `savefig`.

# %%
print(runs.table(target=0.85))
