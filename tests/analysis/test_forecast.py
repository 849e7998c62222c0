"""The network without learning, and forecasts from pilots."""

import json
import subprocess
import sys

import numpy as np
import pytest

import autofl
from autofl.analysis.forecast import SHIPPED, forecast, mean_noise
from autofl.analysis.pilot import DESIGN, run_pilots
from autofl.analysis.pilot_files import Pilot, problem_of, read_pilots, write_pilots
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.experiments.cell import build_network
from autofl.rounds.horizon import draw_horizon

QUICK = ["stop.rounds=12", "evaluation.every=2", "evaluation.test_samples=5"]


@pytest.mark.parametrize("algorithm", ["autofl", "per-fedavg"])
def test_a_horizon_is_the_networks_side_of_a_simulation_to_the_bit(algorithm):
    settings = autofl.load_settings(
        overrides=[*QUICK, f"algorithm={algorithm}", "preset=physical", "cell.distance={disc=400}", "seed=4"]
    )
    sim = build_simulation(settings)
    horizon = draw_horizon(build_network(settings, sim.cell), 12)
    for record, _ in autofl.simulate(sim):
        if record.round == 0:
            continue
        k = record.round - 1
        assert horizon.round_time[k] == record.cost.time
        np.testing.assert_array_equal(horizon.decoded[k, record.ue], record.decoded)
        np.testing.assert_array_equal(horizon.energy[k, record.ue], record.cost.energy)
        for name in ("num_samples", "local_steps", "tx_power"):
            planned = record.decoded * getattr(record.plan, name)
            np.testing.assert_array_equal(getattr(horizon, name)[k, record.ue], planned, err_msg=name)
        assert horizon.decoded[k].sum() == record.decoded.sum()


def test_noise_is_one_over_d_m_and_empty_rounds_do_not_count():
    heard = np.array([[True, True, False], [False, False, False], [False, True, True]])
    samples = np.array([[5, 5, 0], [0, 0, 0], [0, 4, 12]])
    assert mean_noise(heard, samples) == pytest.approx((1 / 10 + (1 / 4 + 1 / 12) / 4) / 2)


def made_up(path, **other):
    """Pilots that follow K = 40 + 1000/(d m) exactly, evaluated in every round."""
    problem = {**problem_of(autofl.load_settings().resolved().table()), **other}
    pilots = []
    for d, m in ((5, 5), (10, 5), (20, 5), (40, 5)):
        K = round(40 + 1000 / (d * m))
        accuracy = tuple(0.9 if k >= K - 1 else 0.1 for k in range(K + 5))  # smoothed over three: passes 0.5 at K
        pilots.append(Pilot(problem, 5, 1, d, m, 1, 1 / (d * m), 0.0, tuple(range(K + 5)), accuracy))
    write_pilots(path, pilots, "made up")
    return path


def test_a_forecast_counts_rounds_time_and_energy_of_the_network(tmp_path):
    settings = autofl.load_settings(
        overrides=["planner.name=fixed", "planner.num_samples=8", "planner.power=max", "cell.distance=50",
                   "cell.small_scale_gain=1", "cell.cycles_per_sample=1e5"]
    )  # fmt: skip
    found = forecast(settings, 0.5, made_up(tmp_path / "pilots.json"))
    one = draw_horizon(build_network(settings), 1)  # every round is the same, apart from who is in it
    assert found.typical.noise == pytest.approx(1 / 40)
    assert found.rounds[0] == pytest.approx(65, rel=0.02)
    assert found.sim_time[0] == pytest.approx(found.rounds[0] * one.round_time[0], rel=1e-9)
    assert found.energy[0] == pytest.approx(found.rounds[0] * one.energy.sum() / 20, rel=1e-9)
    assert found.rounds[1] <= found.rounds[0] <= found.rounds[2]
    assert forecast(settings, 0.5, tmp_path / "pilots.json") == found


def test_pilots_of_another_problem_or_another_form_are_refused(tmp_path):
    settings = autofl.load_settings()
    with pytest.raises(AutoFLError, match=r"outer_lr is 0\.5 there, 0\.07 here"):
        forecast(settings, 0.5, made_up(tmp_path / "other.json", outer_lr=0.5))
    with pytest.raises(AutoFLError, match=r"reach 0\.95"):
        forecast(settings, 0.95, made_up(tmp_path / "short.json"))
    (tmp_path / "bad.json").write_text("[1, 2]")
    with pytest.raises(AutoFLError, match="not a file of pilots"):
        forecast(settings, 0.5, tmp_path / "bad.json")
    with pytest.raises(AutoFLError, match="too few UEs are heard"):
        forecast(autofl.load_settings(overrides=["cell.distance=9000"]), 0.85)


def test_pilots_are_read_off_run_folders(tmp_path):
    settings = autofl.load_settings(overrides=[*QUICK, "stop.rounds=4"])
    pilots = run_pilots(settings, tmp_path / "runs", [5], 1)
    assert [(pilot.num_samples, pilot.num_selected, pilot.local_steps) for pilot in pilots] == [d[:3] for d in DESIGN]
    for pilot, point in zip(pilots, DESIGN, strict=True):
        least = 1 / (pilot.num_samples * pilot.num_selected)
        everybody = pilot.noise == pytest.approx(least)
        assert pilot.noise > 1.01 * least if point.away else everybody
        assert pilot.problem == problem_of(settings.resolved().table())
        assert pilot.round == (0, 2, 4)
    write_pilots(tmp_path / "pilots.json", pilots, "here")
    again, command = read_pilots(tmp_path / "pilots.json")
    assert ([pilot.noise for pilot in again], command) == ([pilot.noise for pilot in pilots], "here")


def test_the_pilots_that_come_along_serve_both_kinds_of_digits():
    pilots, command = read_pilots(SHIPPED)
    assert {pilot.problem["data"] for pilot in pilots} == {"mnist", "mnist5k"}
    assert {pilot.labels for pilot in pilots} == {2, 5, 10}
    assert "autofl pilot" in command
    for name in ("mnist", "mnist5k"):
        found = forecast(autofl.load_settings(overrides=[f"data.name={name}"]), 0.85)
        assert 30 < found.rounds[0] < 90
        assert found.outside == []


def test_a_forecast_loads_no_torch():
    code = (
        "import sys; from autofl.cli.main import run; status = run(['plan', '--target', '0.85', '--json']);"
        "sys.exit(status or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    coming = json.loads(done.stdout)["forecast"]
    assert coming["sim_time"]["low_95"] < coming["sim_time"]["median"] < coming["sim_time"]["high_95"]
