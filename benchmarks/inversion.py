"""What a server can see of one image in an update made of it: MNIST-5k, the project's own model and
client update.

    python benchmarks/inversion.py      # writes docs/images/inversion.png and
    docs/results/inversion.json

The first layer is linear, so its gradient for one sample is a product, dW = delta x^T: its first
right singular vector is the image, up to its scale (Phong et al., IEEE TIFS 2018, divide by the
bias' gradient instead). No search, no knowledge of labels. With noise on the update it is the best
approximation of rank one.
"""

import json
import logging
from pathlib import Path

import matplotlib
import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from autofl.algorithms.fedavg import FedAvg
from autofl.config import load_settings
from autofl.data.batch import Batch, MetaBatch
from autofl.deploy.arrays import params_of, params_record
from autofl.deploy.privacy import local_noise, spent
from autofl.experiments.build import build_model
from autofl.experiments.data import load_federated
from autofl.models import loss_of
from autofl.models import params_of as params_of_model

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
SHOWN, MEASURED = 8, 40
CLIP, DELTA = 0.1, 1e-5
SIZES = (1, 3, 10, 40)
NOISE = (0.0, 0.001, 0.01, 0.1, 1.0)


def client_update(params, loss, x, y):
    """w_i of one step of SGD on these samples."""
    num = len(x)
    batch = Batch(x[None], y[None], torch.ones(1, num))
    nobody = Batch(x[None, :0], y[None, :0], torch.ones(1, 0))
    return FedAvg(outer_lr=0.05).client_update(loss, params, MetaBatch(batch, nobody, nobody))


def released(sent, update, noise_multiplier):
    """The update as a device with deploy.clip and deploy.noise_multiplier sends it."""
    message = Message(
        RecordDict({"params": params_record(sent)}), dst_node_id=1, message_type="train"
    )
    reply = Message(RecordDict({"params": params_record(update)}), reply_to=message)
    noised = local_noise(CLIP, noise_multiplier)(
        message, Context(1, 1, {}, RecordDict(), {}), lambda m, c: reply
    )
    return params_of(noised.content.array_records["params"])


def inverted(sent, update):
    """x up to a factor, of the sign that most pixels of an image have."""
    name = next(iter(sent))
    guess = (
        torch.linalg.svd(update[name].double() - sent[name].double(), full_matrices=False)
        .Vh[0]
        .numpy()
    )
    return guess * np.sign(guess.sum())


def correlation(a, b):
    return float(abs(np.corrcoef(a, b)[0, 1]))


def main() -> None:
    settings = load_settings(overrides=["data.standardise=false"]).resolved()
    data = load_federated(settings, None)
    model = build_model(settings, tuple(data.x.shape[1:]), data.num_classes)
    sent, loss = params_of_model(model), loss_of(model)
    order = np.random.default_rng(1).permutation(len(data.x))
    x, y = data.x[order].float(), data.y[order]
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = (
        1  # of no run: messages ask for them
    )
    logging.disable(logging.INFO)  # Flower has a line for every update
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - Flower's noise comes from here
    pictures, rows = {"the image": x[:SHOWN].numpy()}, []
    for noise in (None, *NOISE):
        seen = []
        for i in range(MEASURED):
            update = client_update(sent, loss, x[i : i + 1], y[i : i + 1])
            seen.append(inverted(sent, update if noise is None else released(sent, update, noise)))
        name = "as it is" if noise is None else "clipped" if noise == 0.0 else f"noise {noise:g}"
        pictures[name] = np.array(seen[:SHOWN])
        values = [
            correlation(guess, true) for guess, true in zip(seen, x[:MEASURED].numpy(), strict=True)
        ]
        epsilon = spent(noise, 40, DELTA) if noise else None
        rows.append(
            {
                "update": name,
                "samples": 1,
                "correlation": float(np.median(values)),
                "epsilon": epsilon,
            }
        )
    for size in SIZES[1:]:
        values, others = [], []
        for i in range(MEASURED // 4):
            own = slice(i * size, (i + 1) * size)
            guess = inverted(sent, client_update(sent, loss, x[own], y[own]))
            values.append(max(correlation(guess, true) for true in x[own].numpy()))
            others.append(
                max(
                    correlation(guess, true)
                    for true in x[len(x) - size - own.start :][:size].numpy()
                )
            )
        seen_of = {
            "correlation": float(np.median(values)),
            "of_strangers": float(np.median(others)),
        }
        rows.append({"update": "as it is", "samples": size, **seen_of, "epsilon": None})
    results = {"clip": CLIP, "delta": DELTA, "releases": 40, "rows": rows}
    (ROOT / "docs" / "results" / "inversion.json").write_text(json.dumps(results, indent=1) + "\n")
    figure, axes = plt.subplots(len(pictures), SHOWN, figsize=(SHOWN, len(pictures)), squeeze=False)
    for line, (name, images) in zip(axes, pictures.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image.reshape(28, 28), cmap="gray")
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    figure.subplots_adjust(left=0.16, right=0.99, top=0.99, bottom=0.01, wspace=0.05, hspace=0.05)
    figure.savefig(ROOT / "docs" / "images" / "inversion.png", dpi=70)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
