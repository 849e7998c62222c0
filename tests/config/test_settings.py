"""Settings: the paper's values as defaults, laws, round trips, and one clear line for what is
wrong.
"""

import numpy as np
import pytest

from autofl.channels import Exponential, NoFading, PathLoss, Rayleigh
from autofl.config import MODEL_WEIGHTS, PerUE, dump_settings, load_settings, parse_settings
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_cell, build_channel, plan
from autofl.models import num_weights, params_of
from autofl.registry import find
from autofl.rng import stream


def test_the_defaults_are_the_papers_table_in_si_units():
    settings = load_settings().resolved()
    cell = build_cell(settings)
    assert cell.num_ue == 20
    assert cell.noise_psd == pytest.approx(3.98107e-21, rel=1e-5)  # -174 dBm/Hz
    assert (cell.max_power[0], cell.max_energy[0], cell.snr_threshold) == (
        0.01,
        0.003,
        pytest.approx(1000.0),
    )
    assert (cell.cpu_frequency[0], cell.capacitance, cell.path_loss_exponent) == (1e9, 1e-27, 3.8)
    assert (cell.update_bits == 32 * 79_510).all()
    assert (cell.local_steps == 1).all()
    assert ((cell.cycles_per_sample >= 0.8e5) & (cell.cycles_per_sample <= 1.2e5)).all()
    assert cell.distance.max() <= 200.0
    assert (settings.learning.inner_lr, settings.learning.outer_lr) == (0.03, 0.07)
    assert build_channel(settings) == PathLoss(Rayleigh(40.0))
    assert build_channel(parse_settings({"preset": "physical"})) == PathLoss(Exponential(1.0))


def test_cifar10_brings_its_own_model_and_step_sizes():
    settings = parse_settings({"data": {"name": "cifar10"}}).resolved()
    assert (settings.model.name, settings.learning.inner_lr, settings.learning.outer_lr) == (
        "lenet5",
        0.06,
        0.02,
    )
    assert (build_cell(settings).update_bits == 32 * 62_006).all()


def test_the_sizes_planning_assumes_are_those_of_the_models():
    shapes = {"cifar10": (3, 32, 32)}
    for (model, data), weights in MODEL_WEIGHTS.items():
        assert (
            num_weights(params_of(find("model", model).target(shapes.get(data, (784,)), 10)))
            == weights
        )
    own = {"data": {"name": "npz", "file": "own.npz"}}
    with pytest.raises(
        AutoFLError, match=r"own\.npz: cannot be read"
    ):  # the model's size depends on it
        plan(parse_settings(own))
    assert plan(parse_settings({**own, "cell": {"update_bits": 1e6}})).round.plan.feasible.any()


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"cell": {"positions": [[3.0, 4.0], [30.0, 40.0], [0.0, 60.0], [5.0, 12.0], [8.0, 15.0]]}},
        {
            "cell": {
                "distance": [10.0, 20.0, 30.0, 40.0, 50.0],
                "max_energy": {"uniform": [1e-3, 5e-3]},
            }
        },
        {"data": {"name": "cifar10"}, "stop": {"plateau": True, "sim_time": 3.0}},
        {
            "cell": {"small_scale_gain": 2.0, "update_bits": 1e6},
            "planner": {"name": "fixed", "num_samples": 7},
        },
    ],
)
def test_resolved_settings_survive_being_written_and_read(table, tmp_path):
    settings = parse_settings(table).resolved()
    (tmp_path / "config.toml").write_text(dump_settings(settings))
    again = load_settings(tmp_path / "config.toml")
    assert dump_settings(again) == dump_settings(settings)
    assert dump_settings(again.resolved()) == dump_settings(settings)
    np.testing.assert_array_equal(plan(again).round.gain, plan(settings).round.gain)


def test_positions_become_distances():
    settings = parse_settings({"cell": {"positions": [[3.0, 4.0], [30.0, -40.0]]}})
    np.testing.assert_allclose(build_cell(settings).distance, [5.0, 50.0])


def test_laws_draw_what_they_say():
    rng = stream(1, "law")
    assert PerUE(law="uniform", parameters=(2.0, 3.0)).draw(rng, 10_000).mean() == pytest.approx(
        2.5, rel=0.01
    )
    spread = PerUE(law="log-uniform", parameters=(1e-3, 1e-2)).draw(rng, 10_000)
    assert 1e-3 <= spread.min() < 1.01e-3
    assert 0.99e-2 < spread.max() <= 1e-2
    assert np.mean(spread < 2e-3) == pytest.approx(np.log10(2.0), abs=0.02)
    assert PerUE(law="exponential", parameters=(4.0,)).draw(rng, 10_000).mean() == pytest.approx(
        4.0, rel=0.05
    )
    # mean of a Rayleigh variable: scale sqrt(pi/2)
    assert PerUE(law="rayleigh", parameters=(2.0,)).draw(rng, 10_000).mean() == pytest.approx(
        2.5066, rel=0.03
    )
    # mean distance in a disc: 2R/3
    assert PerUE(law="disc", parameters=(300.0,)).draw(rng, 10_000).mean() == pytest.approx(
        200.0, rel=0.02
    )
    gains = build_channel(parse_settings({"cell": {"small_scale_gain": [1.0, 2.0]}})).fading
    assert isinstance(gains, NoFading)
    np.testing.assert_array_equal(gains.draw(rng, (2,)), [1.0, 2.0])


def test_a_new_quantity_drawn_does_not_shift_another():
    plain = build_cell(parse_settings({}))
    changed = build_cell(parse_settings({"cell": {"max_energy": {"uniform": [1e-3, 5e-3]}}}))
    np.testing.assert_array_equal(plain.distance, changed.distance)
    np.testing.assert_array_equal(plain.cycles_per_sample, changed.cycles_per_sample)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("cell.max_powr=1", "nearest is 'cell.max_power'"),
        ("celll.num_ue=1", "nearest is 'cell'"),
        ("stop.round=5", "nearest is 'stop.rounds'"),
        ("cell.max_power=-1", "cell.max_power: -1 is not > 1e-15"),
        ("cell.max_power=nan", "nan is not > 1e-15"),
        ("cell.distance=[]", "empty list"),
        ("cell.distance=[1, true]", "must be a number"),
        ("cell.max_power={unifrm=[1, 2]}", "{uniform = [low, high]}"),
        ("cell.max_power={uniform=[2, 1]}", "low <= high"),
        ("cell.max_power={log-uniform=[2, 1]}", "log-uniform needs [low, high] with low <= high"),
        ("cell.max_energy={log-uniform=[0, 1]}", "low > 0"),
        ("cell.num_ue=0", "greater than or equal to 1"),
        (
            "planner.name=exat",
            "settings: planner 'exat' is unknown; there are paper, exact, joint, fixed, ada",
        ),
        ("planner.epsilon=0", "planner paper: epsilon: must be > 0 and <= 0.333333 (got 0.0)"),
        ("planner.epsilon=wide", "planner paper: epsilon: must be a valid number (got 'wide')"),
        ("planner.epsiln=0.1", "planner paper: unknown setting 'epsiln'; the nearest is 'epsilon'"),
        (
            "planner.num_samples=5",
            "planner paper: unknown setting 'num_samples'; the nearest is 'epsilon'",
        ),
        (
            "planner={name='fixed', num_samples=2}",
            "planner fixed: num_samples: must be from 3 to 1,000,000,000 (got 2)",
        ),
        (
            "planner={name='fixed', power='half'}",
            "planner fixed: power: must be 'max' or 'computed' (got 'half')",
        ),
        (
            "planner={name='fixed', sampls=5}",
            "planner fixed: unknown setting 'sampls'; the nearest is 'num_samples'",
        ),
        ("arm=sgd", "settings: arm 'sgd' is unknown; there are autofl, autofl-j"),
        ("arm=3", "arm"),
        ("arm=nowhere.toml", "nowhere.toml: cannot be read"),
        ("arm={title='Mine'}", "arm Mine: it needs a title and an algorithm"),
        ("compare.arms=['autofl', 'autofl']", "compare: arms: each may be named once"),
        ("scenario=umi", "scenario 'umi' is unknown; the nearest is"),
        ("algorithm=autofl-j", "settings: algorithm is called arm now"),
        ("compare.algorithms=['autofl']", "compare.algorithms is called compare.arms now"),
        ("baseline.num_samples=5", "[baseline] is [planner] now"),
        ("joint.thrift=0.5", "[joint] is [planner] now"),
        ("channel.name=fibre", "channel 'fibre' is unknown; there are path-loss"),
        ("selection.name=best", "selection 'best' is unknown; there are uniform, by-data"),
        ("selection.nm_selected=5", "unknown setting 'nm_selected'; the nearest is 'num_selected'"),
        (
            "selection.num_selected=many",
            "selection uniform: num_selected: must be a valid integer (got 'many')",
        ),
        ("compressor.name=zip", "compressor 'zip' is unknown; there are"),
        ("compressor.bits=4", "compressor none: unknown setting 'bits'; it has none"),
        ("aggregator.name=medin", "aggregator 'medin' is unknown; there are mean"),
        ("aggregator.share=0.1", "unknown setting 'share'; it has none"),
        ("planner=3", "must be a section, [planner]"),
        ("planner.name=3", "planner.name: must be a valid string (got 3)"),
        ("planner.name=nowhere:Own", "planner nowhere:Own: no module 'nowhere' in "),
        ("planner.name=math:Own", "planner math:Own: math has no 'Own'"),
        ("data.name=mist", "data 'mist' is unknown; there are mnist5k"),
        ("data.partition=halves", "data: partition 'halves' is unknown; there are iid"),
        (
            "model.name=mpl",
            "model 'mpl' is unknown; there are auto, mlp, lenet5, or your own as module:object",
        ),
        ("model.name=''", "model.name: "),
        ("model.hidden=7", "model auto: unknown setting 'hidden'; name a model to set its own"),
        ("model={name='mlp', hidden=7}", "model mlp: unknown setting 'hidden'"),
        (
            "learning.inner_rl=0.1",
            "learning.inner_rl: unknown key; the nearest is 'learning.inner_lr'",
        ),
        (
            "learning.split=[0.1, 0.9]",
            "learning: split: give three shares > 0 of sum 1, such as [0.1, 0.8, 0.1]",
        ),
        ("learning.split=[0.5, 0.5, 0.5]", "learning: split: give three shares > 0 of sum 1"),
        ("learning.lr_decay=-1", "learning.lr_decay: "),
        ("learning.guard=-1", "learning.guard: "),
        (
            "learning.grad_clp=1",
            "learning.grad_clp: unknown key; the nearest is 'learning.grad_clip'",
        ),
        ("seed=1.5", "valid integer"),
        ("stop.plateau=1", "valid boolean"),
        ("cell=3", "must be a section, [cell]"),
        ("simulation.num_selected=21", "more than the 20 UEs"),
        ("data.partition=own", 'needs name = "npz"'),
        ("nonsense", "section.key=value"),
        ("seed.a.b=1", "unknown key"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_way_out(override, says):
    if override.startswith("seed.a"):
        says = "seed"
    with pytest.raises(AutoFLError) as caught:
        load_settings(overrides=[override])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_named_on_the_command_line_takes_the_place_of_the_files(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[planner]\nname = "exact"\nepsilon = 0.05\n')
    assert load_settings(path, ["planner.name=paper"]).planner.given == {
        "epsilon": 0.05
    }  # which both have
    assert load_settings(path, ["planner.name=fixed"]).planner.given == {}
    assert load_settings(path, ["planner.num_samples=7", "planner.name=fixed"]).planner.given == {
        "num_samples": 7
    }
    for words in (["planner.name=fixed", "planner.epsilon=0.1"], ["planner.num_samples=7"]):
        with pytest.raises(AutoFLError, match="unknown setting"):
            load_settings(path, words)
    path.write_text('[planner]\nname = "exact"\nepsiln = 0.05\n')
    with pytest.raises(AutoFLError, match="unknown setting 'epsiln'"):
        load_settings(path, ["planner.name=fixed"])


def test_lists_of_different_lengths_are_named():
    with pytest.raises(AutoFLError, match="distance 2, max_power 3"):
        parse_settings({"cell": {"distance": [1.0, 2.0], "max_power": [1.0, 2.0, 3.0]}})


def test_a_data_set_and_a_partition_of_one_s_own_take_their_settings_from_data():
    from autofl.experiments.data import load_federated

    named = [
        'data.name="contracts.own_parts:stripes"',
        'data.partition="contracts.own_parts:Halves"',
        "cell.num_ue=4",
    ]
    plain, told = (
        load_federated(load_settings(overrides=[*named, *more]))
        for more in ([], ["data.noise=0.0", "data.times=9.0"])
    )
    assert float(told.x.abs().sum()) < 0.5 * float(plain.x.abs().sum())
    assert told.partition.train_size[0] > plain.partition.train_size[0]
    settings = load_settings(overrides=[*named, "data.noise=0.5"])
    assert parse_settings(settings.resolved().table()) == settings.resolved()
    for wrong, words in (
        ("data.noize=1.0", "nearest is 'data.noise'"),
        ("data.noise=much", "valid number"),
    ):
        with pytest.raises(AutoFLError, match=words):
            load_settings(overrides=[*named, wrong])
    with pytest.raises(AutoFLError, match=r"data.noise: unknown key"):
        load_settings(overrides=["data.noise=1.0"])  # MNIST-5k has none


def test_a_small_cell_needs_no_number_of_selected_ues():
    """Any other setting of the section made five of three UEs an error."""
    settings = load_settings(overrides=["cell.num_ue=3", "simulation.threads=1"])
    assert settings.resolved().simulation.num_selected == 3
    with pytest.raises(AutoFLError, match="5 is more than the 3 UEs"):
        load_settings(overrides=["cell.num_ue=3", "simulation.num_selected=5"])
