"""A model that client updates cannot train is refused in one line that says what to do; every other
one passes.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autofl.config import parse_settings
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.models import build, check_model, lenet5, mlp, params_of
from autofl.rng import stream


class Own(nn.Module):
    """A model whose forward is the function given."""

    def __init__(self, forward, *parts):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(6, 3), *parts])
        self.register_buffer("seen", torch.zeros(()))
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def counted(model, x):
    if model.training:
        model.seen += 1
    return model.parts[0](x)


def encoder(dropout=0.0, batch_first=True):
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=dropout, batch_first=batch_first)
    return Own(lambda model, x: model.parts[0](model.parts[1](x).mean(1)), layer)


def frozen():
    return nn.Linear(6, 3).requires_grad_(False)


LINEAR = nn.Linear(6, 3)
REFUSED = {
    "batch norm": (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "BatchNorm1d '1'.*GroupNorm"),
    "batch norm without statistics": (
        nn.Sequential(LINEAR, nn.BatchNorm1d(3, track_running_stats=False)), "BatchNorm1d '1'.*LayerNorm",
    ),
    "instance norm with statistics": (
        nn.Sequential(nn.Unflatten(1, (1, 6)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten(), LINEAR),
        "InstanceNorm1d '1'.*GroupNorm",
    ),
    "spectral norm": (
        nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))), "buffer '.*_[uv]' changes in training",
    ),
    "spectral norm that has settled": (
        nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3), n_power_iterations=500)),
        "buffer '.*_[uv]' changes in training",
    ),
    "a count of its own": (Own(counted), "buffer 'seen' changes in training"),
    "dropout": (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.25)), "Dropout '1'.*set its dropout to 0 instead of 0.25"),
    "alpha dropout": (nn.Sequential(nn.Linear(6, 3), nn.AlphaDropout(0.1)), "AlphaDropout '1'.*set its dropout to 0"),
    "dropout in a function": (Own(lambda model, x: F.dropout(model.parts[0](x), 0.5, model.training)), "at random"),
    "noise": (Own(lambda model, x: model.parts[0](x) + torch.randn(3)), "depends on the other samples|at random"),
    "attention that drops": (
        Own(lambda model, x: model.parts[1](x, x, x)[0], nn.MultiheadAttention(6, 2, dropout=0.1, batch_first=True)),
        "MultiheadAttention 'parts.1'.*instead of 0.1",
    ),
    "recurrence that drops": (nn.LSTM(6, 3, num_layers=2, dropout=0.3), "LSTM.*instead of 0.3"),
    "other classes": (nn.Linear(6, 4), r"output of shape \(1, 4\); make it \(1, 3\)"),
    "no classes": (Own(lambda model, x: model.parts[0](x).sum(1)), r"output of shape \(1,\)"),
    "a lone sample squeezed": (Own(lambda model, x: model.parts[0](x).squeeze(0)), r"output of shape \(3,\)"),
    "two outputs": (Own(lambda model, x: (model.parts[0](x), x)), "its output is tuple; return one tensor of floats"),
    "labels": (Own(lambda model, x: model.parts[0](x).round().long()), "its output is torch.int64"),
    "frozen": (frozen(), "no parameter with requires_grad=True"),
    "no weights": (nn.Flatten(), "no parameter with requires_grad=True"),
    "no weights yet": (nn.LazyLinear(3), "LazyLinear has no weights yet"),
    "mixed samples": (Own(lambda model, x: model.parts[0](x - x.mean(0))), "depends on the other samples of its batch"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_client_updates_cannot_train_is_refused_in_one_line(kind):
    model, says = REFUSED[kind]
    with pytest.raises(AutoFLError, match=says) as error:
        check_model(model, (6,), 3)
    assert str(error.value).startswith("model: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (encoder(dropout=0.1), "MultiheadAttention 'parts.1.self_attn'.*instead of 0.1"),
        (encoder(batch_first=False), "batch_first=True"),
        (
            nn.Linear(5, 3),
            r"a batch of shape \(1, 4, 6\) fails in it: mat1 and mat2.*make it take \(num, \*sample shape\)",
        ),
        (nn.Linear(6, 3), r"output of shape \(1, 4, 3\)"),
    ],
    ids=["transformer that drops", "sequence first", "other inputs", "an axis too many"],
)
def test_samples_of_two_axes_are_checked_alike(model, says):
    with pytest.raises(AutoFLError, match=says) as error:
        check_model(model, (4, 6), 3)
    assert "\n" not in str(error.value)


def test_good_models_pass_unchanged_and_nothing_is_drawn():
    half_frozen = nn.Sequential(frozen(), nn.Linear(3, 3))
    torch.manual_seed(0)
    good = [
        (mlp((6,), 3), (6,)), (mlp((2, 3), 3), (2, 3)), (lenet5((1, 28, 28), 3), (1, 28, 28)), (half_frozen, (6,)),
        (encoder(), (4, 6)), (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.0), nn.LayerNorm(3)), (6,)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)), (6,)), (nn.Linear(6, 3).double(), (6,)),
    ]  # fmt: skip
    for model, shape in good:
        before, generator = params_of(model), torch.random.get_rng_state()
        check_model(model, shape, 3)
        assert torch.equal(torch.random.get_rng_state(), generator)
        assert all(torch.equal(p, before[name]) for name, p in params_of(model).items())
        assert not any(module.training for module in model.modules())


def test_a_factory_and_an_own_model_are_checked_before_a_run(few_digits):
    with pytest.raises(AutoFLError, match=r"output of shape \(1, 4\)"):
        build(lambda shape, classes: nn.Linear(6, 4), (6,), 3, stream(1, "init"))
    with pytest.raises(AutoFLError, match="BatchNorm1d"):
        build_simulation(
            parse_settings({"cell": {"num_ue": 8}}),
            dataset=few_digits,
            model=nn.Sequential(mlp(), nn.BatchNorm1d(10)),
        )
