"""Rounds written by hand."""

import numpy as np

from autofl.core.round import Round
from autofl.network import Cell, RoundCost, Status, make_plan
from autofl.quality import Evaluation


def hand_made(k, sim_time, round_time, ue, energy, decoded, evaluation: Evaluation) -> Round:
    """Round k, in which two UEs train on 9 samples each and the energy binds; without energy they
    take no part.

    0.1 stands for all that is not given.
    """
    two = np.array([0.1, 0.1])
    energy_binds = np.full(2, Status.ENERGY, np.int8)
    heard = np.array(decoded)
    return Round(
        k,
        ue=np.array(ue),
        probability=two,
        cell=Cell(np.ones(2)),
        gain=two,
        known=two,
        snr=two,
        sends=np.ones(2, np.bool_),
        decoded=heard,
        arrived=heard,
        bits=np.full(2, 320.0),
        guarded=np.zeros(2, np.int64),
        sim_time=sim_time,
        plan=make_plan(
            Cell(np.ones(2)),
            num_samples=np.array([9, 9]),
            tx_power=two,
            feasible=np.asarray(energy) > 0.0,
            samples_limit=energy_binds,
            power_limit=energy_binds,
        ),
        cost=RoundCost(
            upload_time=two, compute_time=two, energy=np.array(energy), time=np.array(round_time)
        ),
        evaluation=evaluation,
        inner_lr=0.03,
        outer_lr=0.07,
        step_length=0.3,
    )
