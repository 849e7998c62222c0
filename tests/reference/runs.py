"""Runs written by hand, for what reads them."""

import numpy as np

from autofl.core.round import Round
from autofl.core.together import play_together
from autofl.quality import Evaluation
from autofl.records import RunWriter, read_run
from reference.records import hand_made


def simulate_together(sims):
    """Which run, its round and the server's state after it, of runs in one batch."""
    for steps in play_together(sims):
        for r, this, checkpoint in steps:
            yield r, this, checkpoint.state


def written(
    folder,
    algorithm,
    seed,
    accuracies,
    seconds_a_round,
    config="[stop]\nrounds = 3\n",
    heard=True,
    stop="rounds",
):
    """A run whose accuracy after each round is given; two of four UEs are selected and send, 1 mJ
    each, if heard.
    """
    writer = RunWriter(
        folder, f'arm = "{algorithm}"\nseed = {seed}\n{config}',
        {"algorithm": algorithm, "seed": seed, "num_ue": 4, "data": "mnist5k"},
    )  # fmt: skip
    for k, accuracy in enumerate(accuracies):
        quality = Evaluation(1.0, 0.9, accuracy, accuracy, float("nan"), adapt_lr=0.05)
        if k == 0:
            writer.write(Round(0, evaluation=quality))
            continue
        energy, decoded = np.array([1e-3, 1e-3]) * heard, [heard, heard]
        writer.write(
            hand_made(k, k * seconds_a_round, seconds_a_round, [0, 2], energy, decoded, quality)
        )
    writer.finish("finished", stop=stop)
    writer.close()
    return read_run(folder)
