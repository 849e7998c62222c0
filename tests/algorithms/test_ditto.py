"""Ditto: its own model by hand, and that it is what is evaluated as adapted."""

import numpy as np
import pytest
import torch

from autofl.algorithms import FedAvg
from autofl.algorithms.ditto import TRAINED, Ditto
from autofl.config import load_settings
from autofl.core.simulation import simulate
from autofl.data.batch import Batch, MetaBatch
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.models import loss_of
from reference.one_weight import batch_of, quadratic


@pytest.mark.slow
def test_the_global_model_is_fedavg_s_and_its_own_is_drawn_to_it():
    ditto, sent = Ditto(0.5, pull=1.0), {"w": torch.tensor([0.0])}
    update, own = ditto.client_step(quadratic, sent, batch_of(1), ditto.client_init(sent))
    assert torch.equal(update["w"], FedAvg(0.5).client_update(quadratic, sent, batch_of(1))["w"])
    assert own["w"].item() == 2.0  # 0 - 0.5 ((0 - 4) + (0 - 0))
    sent = {"w": torch.tensor([1.0])}
    _, own = ditto.client_step(quadratic, sent, batch_of(1), own)
    assert own["w"].item() == 2.5  # 2 - 0.5 ((2 - 4) + (2 - 1)): it goes on from where it was
    assert ditto.personal(quadratic, sent, None, own)["w"].item() == 2.5


def test_a_ue_that_has_not_trained_begins_with_and_uses_the_global_model():
    ditto, old, new = Ditto(0.5), {"w": torch.tensor([0.0])}, {"w": torch.tensor([3.0])}
    blank = ditto.client_init(old)
    assert ditto.personal(quadratic, new, None, blank)["w"].item() == 3.0
    _, own = ditto.client_step(quadratic, new, batch_of(1), blank)
    assert own["w"].item() == 3.5
    assert own[TRAINED].item() == 1.0


def test_the_accuracy_called_adapted_is_that_of_the_ue_s_own_models():
    settings = load_settings(
        overrides=[
            "arm=ditto",
            "stop.rounds=4",
            "evaluation.every=4",
            "simulation.num_selected=20",
        ]
    )
    sim = build_simulation(settings)
    *_, (last, state) = simulate(sim)
    # By hand: play the four rounds again for one UE after another, and judge its own model on its
    # own test samples.
    ditto, loss, accuracy = sim.arm.algorithm, loss_of(sim.model), []
    states = {0: sim.params}
    for record, after in simulate(sim):
        states[record.k] = after.params
    rounds = [record for record, _ in simulate(sim)]
    for ue in range(20):
        own = ditto.client_init(sim.params)
        for record in rounds[1:]:
            if record.arrived[ue]:
                plan = record.plan
                batches = sim.data.draw(
                    np.array([ue]), plan.num_samples[[ue]], 1, sim.seed, record.k
                )
                one = MetaBatch.of(Batch(*(part[:, 0] for part in batches.take(np.array([0])))))
                _, own = ditto.client_step(loss, states[record.k - 1], one, own)
        x, y = sim.data.gather(sim.data.partition.test_of(ue))
        personal = ditto.personal(loss, state.params, None, own)
        output = torch.func.functional_call(sim.model, personal, (x,))
        accuracy.append(float((output.argmax(-1) == y).double().mean()))
    assert last.evaluation.adapted_accuracy == pytest.approx(np.mean(accuracy), abs=2e-4)
    assert abs(last.evaluation.adapted_accuracy - last.evaluation.global_accuracy) > 0.01


def test_nonsense_is_refused():
    with pytest.raises(AutoFLError):
        Ditto(0.1, pull=-1.0)
