"""FedJAX: its `federated_averaging`, `UniformGetClientSampler` and client data sets; what a client
computes is jitted.

FedJAX ships no Per-FedAvg. Its `federated_averaging` takes any function (params, batch, rng) ->
gradients, so ours gives it the exact meta-gradient of a batch of 3 * samples cut in three. The
clients' data sets hold the indices of
their samples, and a batch preprocessor gathers them from one pool: as fast as a copy for each
client, with less memory. FedJAX 0.0.17 (2023) needs `jax.tree_map`, which newer JAX has dropped: we
put the name back, since today's JAX runs these rounds a fifth faster than 0.5.3, which still has
it.
"""

import os
from importlib.metadata import version

from common import Clock, arguments, demand, read_work, report

options = arguments(__doc__)
# XLA takes its number of threads from the cores it may use; this must come before JAX starts.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

jax.tree_map = jax.tree_util.tree_map  # FedJAX calls it by its old name

import fedjax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402

work = read_work(options.work)


def pool(x):
    """The largest of each 2 x 2 square: written so, XLA runs it faster on a CPU than by
    `reduce_window`.
    """
    return jnp.maximum(
        jnp.maximum(x[:, :, ::2, ::2], x[:, :, 1::2, ::2]),
        jnp.maximum(x[:, :, ::2, 1::2], x[:, :, 1::2, 1::2]),
    )


def loss(params, x, y):
    for w, b in zip(params[:-2:2], params[1:-2:2], strict=True):
        if w.ndim == 4:
            x = pool(jax.nn.relu(jax.lax.conv(x, w, (1, 1), "VALID") + b[:, None, None]))
        else:
            x = jax.nn.relu(x.reshape(len(x), -1) @ w.T + b)
    logits = x @ params[-2].T + params[-1]
    picked = jnp.take_along_axis(logits, y[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - picked)


gradient = jax.grad(loss)


def plain(params, batch, rng):
    return gradient(params, batch["x"], batch["y"])


def meta(params, batch, rng):
    """(I - alpha H(w; D_h)) g(w - alpha g(w; D_in); D_o)."""
    d_in, d_o, d_h = zip(jnp.split(batch["x"], 3), jnp.split(batch["y"], 3), strict=True)
    adapted = jax.tree_util.tree_map(
        lambda w, g: w - work.inner_lr * g, params, gradient(params, *d_in)
    )
    outer = gradient(adapted, *d_o)
    _, hess = jax.jvp(lambda w: gradient(w, *d_h), (params,), (outer,))
    return jax.tree_util.tree_map(lambda g, h: g - work.inner_lr * h, outer, hess)


GRADIENTS = {"fedavg": plain, "per-fedavg": meta}


def rounds(work, algorithm):
    """A function that runs one round and returns the weights after it."""
    num = work.num_drawn(algorithm)
    clients = fedjax.InMemoryFederatedData(
        {ue: {"index": work.owned(ue)} for ue in range(work.num_ue)}
    )
    clients = clients.preprocess_batch(
        lambda batch: {"x": work.x[batch["index"]], "y": work.y[batch["index"]]}
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(clients, work.selected, seed=0)
    learner = fed_avg.federated_averaging(
        GRADIENTS[algorithm],
        fedjax.optimizers.sgd(work.outer_lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=num, num_epochs=None, num_steps=1),
    )
    state = learner.init([jnp.asarray(w) for w in work.weights])

    def run_round():
        nonlocal state
        state, _ = learner.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        return [np.asarray(w) for w in state.params]

    return run_round


if options.check:
    own = work.owned(0)[: 3 * work.samples]
    for name, grad in GRADIENTS.items():
        index = own[: work.num_drawn(name)]
        step = jax.jit(grad)(
            [jnp.asarray(w) for w in work.weights], {"x": work.x[index], "y": work.y[index]}, None
        )
        demand(
            work,
            f"client {name}",
            [w - work.outer_lr * np.asarray(g) for w, g in zip(work.weights, step, strict=True)],
        )
        demand(work, f"round {name}", rounds(work.constant(), name)())
else:
    clock, run_round = Clock(options.warmup), rounds(work, options.algorithm)
    for _ in range(clock.warmup + options.rounds):
        run_round()
        clock.tick()
    report(
        "fedjax",
        f"{version('fedjax')} (jax {jax.__version__})",
        options,
        "step written by us: exact",
        clock,
        "FedAvg as shipped, Per-FedAvg our gradient function in it; threads by core affinity",
    )
