"""Runs written by hand, for what reads them."""

import numpy as np

from autofl.records import Evaluation, RoundRecord, RunWriter, read_run


def written(
    folder, algorithm, seed, accuracies, seconds_a_round, config="[stop]\nrounds = 3\n", heard=True, stop="rounds"
):
    """A run whose accuracy after each round is given; two of four UEs are selected and send, 1 mJ each, if heard."""
    writer = RunWriter(
        folder, f'algorithm = "{algorithm}"\nseed = {seed}\n{config}',
        {"algorithm": algorithm, "seed": seed, "num_ue": 4, "data": "mnist5k"},
    )  # fmt: skip
    for k, accuracy in enumerate(accuracies):
        quality = Evaluation(1.0, 0.9, accuracy, accuracy, float("nan"))
        if k == 0:
            writer.write(RoundRecord(round=0, evaluation=quality))
            continue
        two = np.array([0.1, 0.1])
        writer.write(
            RoundRecord(
                round=k,
                sim_time=k * seconds_a_round,
                round_time=seconds_a_round,
                ue=np.array([0, 2]),
                channel_gain=two,
                num_samples=np.array([9, 9]),
                tx_power=two,
                snr=two,
                upload_time=two,
                compute_time=two,
                energy=np.array([1e-3, 1e-3]) * heard,
                status=("energy" if heard else "infeasible",) * 2,
                decoded=np.array([heard, heard]),
                evaluation=quality,
            )
        )
    writer.finish("finished", stop=stop)
    writer.close()
    return read_run(folder)
