"""FedProx on a quadratic whose steps can be worked by hand."""

import pytest
import torch

from autofl.algorithms import FedAvg
from autofl.algorithms.fedprox import FedProx
from autofl.errors import AutoFLError
from reference.one_weight import batch_of, quadratic


def test_steps_by_hand():
    params = {"w": torch.tensor([0.0])}
    # w1 = 0 - 0.5 (0 - 4) = 2; w2 = 2 - 0.5 ((2 - 4) + 0.5 (2 - 0)) = 2.5; w3 = 2.5 - 0.5 (-1.5 +
    # 1.25) = 2.625
    for steps, expected in ((1, 2.0), (2, 2.5), (3, 2.625)):
        assert (
            FedProx(0.5, mu=0.5).client_update(quadratic, params, batch_of(steps))["w"].item()
            == expected
        )


def test_it_settles_between_the_global_model_and_the_ue_s_own():
    # The least of (w - 4)^2 / 2 + mu w^2 / 2 is 4 / (1 + mu).
    params = {"w": torch.tensor([0.0], dtype=torch.float64)}
    for mu in (0.1, 1.0, 3.0):
        local = FedProx(0.2, mu).client_update(quadratic, params, batch_of(300))["w"].item()
        assert local == pytest.approx(4.0 / (1.0 + mu), rel=1e-6)


def test_without_the_term_it_is_fedavg():
    params = {"w": torch.tensor([1.0])}
    plain, prox = (
        rule.client_update(quadratic, params, batch_of(4))
        for rule in (FedAvg(0.3), FedProx(0.3, 0.0))
    )
    assert torch.equal(plain["w"], prox["w"])


def test_nonsense_is_refused():
    with pytest.raises(AutoFLError):
        FedProx(0.1, mu=-1.0)
