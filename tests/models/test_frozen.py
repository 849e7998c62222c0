"""Frozen weights: neither trained nor uploaded, and the model is evaluated with them."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from autofl.config import parse_settings
from autofl.core.simulation import simulate
from autofl.engines import make_engine, pick_engine
from autofl.evaluation import Evaluator
from autofl.experiments.build import build_simulation
from autofl.models import num_weights, params_of
from reference.updates import ALGORITHMS, NUM_SAMPLES, UE

WEIGHT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


def half_frozen():
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(784, 12), nn.Tanh(), nn.Linear(12, 10))
    model[0].requires_grad_(False)
    return model


def test_frozen_weights_are_left_out_of_the_parameters():
    assert set(params_of(half_frozen())) == {"2.weight", "2.bias"}
    assert num_weights(params_of(half_frozen())) == 130


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_update_is_that_of_the_last_layer_on_the_features_of_the_frozen_one(
    federated, name, engine
):
    model = half_frozen()
    batches = federated.draw(UE, NUM_SAMPLES, 2, seed=1, round_index=2)
    ours = make_engine(engine, model)(
        ALGORITHMS[name], params_of(model, torch.float64), batches, UE
    ).mean(WEIGHT)

    features = copy.deepcopy(model[:2]).double()
    alone = copy.deepcopy(model[2])
    batch = batches.take(np.arange(len(UE)))

    class Features:
        width = batch.y.shape[-1]
        local_steps = batches.local_steps

        def __len__(self):
            return len(UE)

        def take(self, rows):
            with torch.no_grad():
                return type(batch)(
                    features(batch.x[:, rows]), batch.y[:, rows], batch.mask[:, rows]
                )

    last = make_engine("loop", alone)(
        ALGORITHMS[name], params_of(alone, torch.float64), Features(), UE
    ).mean(WEIGHT)
    for key, p in last.items():
        torch.testing.assert_close(ours[f"2.{key}"], p, rtol=1e-8, atol=1e-12)


def test_evaluation_takes_the_frozen_weights_from_the_model(federated):
    model, evaluator = half_frozen(), Evaluator(inner_lr=0.3, gradient_norm=True)
    params = params_of(model, torch.float64)
    judged = evaluator.prepare(model, federated, 1)(params)
    assert judged.adapted_train_loss < judged.train_loss
    with torch.no_grad():
        model[0].weight.zero_()  # all samples look alike now
    assert evaluator.prepare(model, federated, 1)(params).train_loss != judged.train_loss


def test_a_run_trains_and_uploads_the_rest_alone(few_digits):
    model = half_frozen()
    before = copy.deepcopy(model.state_dict())
    settings = parse_settings(
        {"cell": {"num_ue": 8}, "stop": {"rounds": 2}, "simulation": {"num_selected": 3}}
    )
    sim = build_simulation(settings, dataset=few_digits, model=model)
    assert sim.engine_name == pick_engine("auto", model, sim.arm.algorithm) == "vmap"
    assert (sim.cell.update_bits == 32 * 130).all()
    *_, (record, state) = simulate(sim)
    assert record.k == 2
    assert set(state.params) == {"2.weight", "2.bias"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
