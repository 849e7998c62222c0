"""The commands as a user types them."""

import json
import resource
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer

import autofl
from autofl.cli.main import run as run_cli
from autofl.cli.shared import interruptible, print_json, resuming
from autofl.records import find_runs
from autofl.version import __version__
from reference.joint_pilots import write

CELL = Path(__file__).parents[2] / "examples" / "cell.toml"
FIELDS = [
    "id",
    "distance",
    "channel_gain",
    "num_samples",
    "tx_power",
    "snr",
    "upload_time",
    "compute_time",
    "energy",
]
FIELDS.append("status")
QUICK = [
    "--set",
    "stop.rounds=4",
    "--set",
    "evaluation.every=2",
    "--set",
    "evaluation.test_samples=5",
]


def answer(capsys, *argv):
    status = run_cli([str(word) for word in argv])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("planner", ["paper", "exact", "fixed"])
def test_plan_prints_the_promised_object(capsys, planner):
    status, out, _ = answer(capsys, "plan", CELL, "--planner", planner, "--json")
    plan = json.loads(out)
    assert status == 0
    assert [list(ue)[: len(FIELDS)] for ue in plan["ues"]] == [FIELDS] * 8
    assert [ue["id"] for ue in plan["ues"]] == list(range(8))
    slowest = max(ue["upload_time"] + ue["compute_time"] for ue in plan["ues"])
    assert plan["round_time"] == pytest.approx(slowest, rel=1e-12)
    for ue in plan["ues"]:
        assert ue["status"] in {"accuracy", "data", "energy", "power", "infeasible"}
        assert (
            (ue["status"] == "infeasible")
            == (ue["num_samples"] == 0)
            == (ue["infeasible_because"] is not None)
        )
        if ue["status"] != "infeasible":
            noise = 10 ** (-17.4) * 1e-3 * 1e6
            assert ue["snr"] == pytest.approx(ue["tx_power"] * ue["channel_gain"] / noise, rel=1e-9)
            assert ue["snr"] >= 1000 * (1 - 1e-9)


def test_plan_shows_a_table_with_the_same_numbers(capsys):
    _, plan, _ = answer(capsys, "plan", CELL, "--json")
    _, out, _ = answer(capsys, "plan", CELL)
    assert "infeasible (power)" in out
    assert f"round time {json.loads(plan)['round_time']:.4g} s; " in out


@pytest.mark.slow
def test_plan_starts_fast_and_without_torch_scipy_or_matplotlib():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import sys; from autofl.cli.main import run; run(['plan']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'matplotlib')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert (
        used < 3.0
    )  # promised is 0.5 s of CPU time; a loaded machine may take more, PyTorch takes more than 3


ABSURD = (
    "cell.max_power=1e-300",
    "cell.bandwidth=1e-300",
    "cell.cpu_frequency=1e-300",
    "cell.update_bits=1e-300",
    "cell.downlink_power=1e-300",
    "cell.min_distance=1e-300",
    "cell.path_loss_exponent=20 cell.min_distance=0.001 cell.distance=0",
    "cell.small_scale_gain=1e12",
    "cell.small_scale_gain=1e12 cell.distance=1",
    "cell.max_power=2e-15",
)


@pytest.mark.parametrize("planner", ["paper", "exact", "joint", "yang"])
@pytest.mark.parametrize("law", ["shannon", "gap"])
@pytest.mark.parametrize("absurd", ABSURD)
def test_an_absurd_cell_is_planned_or_refused_in_one_line_without_warnings(
    capsys, absurd, law, planner
):
    words = [word for value in (*absurd.split(), f"link.name={law}") for word in ("--set", value)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        status, out, err = answer(capsys, "plan", "--planner", planner, "--json", *words)
    assert status in (0, 2)
    if status == 0:
        told = json.loads(out, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
        assert told["round_time"] < 1e18  # a round of 1e290 s was printed with all its digits
    else:
        assert len(err.splitlines()) == 1


def test_what_is_printed_as_json_has_no_infinity(capsys):
    print_json({"interval": [0.5, float("inf")]})
    assert json.loads(capsys.readouterr().out) == {"interval": [0.5, None]}


def test_plan_draws_a_map_only_when_asked(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, name in ((["--picture"], "plan.png"), (["--picture", "own.svg"], "own.svg")):
        status, out, err = answer(capsys, "plan", "--scenario", "umi-phones", *words, "--json")
        assert (status, len(json.loads(out)["ues"])) == (0, 20)
        assert f"picture: {name}" in err
        assert (tmp_path / name).is_file()
    status, _, err = answer(capsys, "plan", "--picture", CELL)
    assert (status, "picture: plan.png" in err) == (0, True)


def test_scenarios_are_listed_and_serve_as_a_base(capsys, tmp_path):
    status, out, _ = answer(capsys, "list", "scenarios", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert status == 0
    assert (
        rows["umi-phones"]["carrier"],
        rows["umi-phones"]["channel"],
        rows["paper"]["radius"],
    ) == (
        3.5e9,
        "umi",
        200,
    )
    status, out, err = answer(capsys, "list", "scenarios")
    assert (status, "narrowband-sensors" in out, "Vehicles on the move" in err) == (0, True, True)
    for command in ("plan", "tune", "analyze", "pilot"):
        status, _, err = answer(capsys, command, "--scenario", "umi-fones")
        assert (status, "the nearest is 'umi-phones'" in err) == (2, True)
    folder = tmp_path / "run"
    status, _, _ = answer(
        capsys, "simulate", "--scenario", "umi-phones", "--out", folder, *QUICK, "--json"
    )
    assert status == 0
    assert 'scenario = "umi"' in (folder / "config.toml").read_text()
    status, _, err = answer(capsys, "simulate", "--resume", folder, "--scenario", "vehicles")
    assert (status, "give no file" in err) == (2, True)


@pytest.mark.slow
def test_simulate_then_report_without_training(capsys, tmp_path):
    status, out, err = answer(capsys, "simulate", "--out", tmp_path / "run", *QUICK, "--json")
    assert status == 0
    assert json.loads(out)["rows"][0]["label"] == "AutoFL"
    assert "4 rounds" in err
    status, out, err = answer(
        capsys, "report", tmp_path / "run", "--target", "0.1", "--out", tmp_path / "report"
    )
    assert status == 0
    assert "AutoFL" in out
    for name in ("learning_time", "rounds", "energy"):
        assert (tmp_path / "report" / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert "<svg" in (tmp_path / "report" / f"{name}.svg").read_text()[:1000]
    assert (tmp_path / "report" / "report.md").read_text().startswith("# AutoFL: ")


@pytest.mark.slow
def test_compare_ends_with_a_table_of_all_four(capsys, tmp_path):
    status, out, err = answer(capsys, "compare", "--seeds", 2, "--out", tmp_path, *QUICK)
    assert status == 0
    for label in ("AutoFL", "Per-FedAvg", "FedAvg-1", "FedAvg-2", "±"):
        assert label in out
    assert "learning_time.png" in err
    status, _, err = answer(capsys, "compare", "--seeds", 2, "--out", tmp_path, *QUICK)
    assert status == 2
    assert "--force" in err


@pytest.mark.slow
def test_results_go_to_the_next_free_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert answer(capsys, "simulate", *QUICK)[0] == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "simulate-1",
        "simulate-2",
    ]


@pytest.mark.slow
def test_own_arrays_and_an_own_partition_can_be_simulated(capsys, tmp_path, rng):
    import numpy as np

    y = np.tile(np.arange(4), 60)
    np.savez(
        tmp_path / "own.npz", x=rng.normal(size=(240, 6)) + y[:, None], y=y, ue=np.arange(240) // 40
    )
    status, out, err = answer(
        capsys, "simulate", "--out", tmp_path / "run", "--json", *QUICK, "--set", "data.name=npz", "--set",
        f"data.file='{tmp_path / 'own.npz'}'", "--set", "data.partition=own", "--set", "cell.num_ue=6",
    )  # fmt: skip
    assert status == 0, err
    assert json.loads(out)["rows"][0]["final_adapted"]["mean"] > 0


@pytest.fixture
def own_data(tmp_path, rng):
    """Settings for 240 samples of four classes at six UEs: small enough to analyse in seconds."""
    import numpy as np

    y = np.tile(np.arange(4), 60)
    np.savez(
        tmp_path / "own.npz", x=rng.normal(size=(240, 6)) + y[:, None], y=y, ue=np.arange(240) // 40
    )
    settings = (
        "data.name=npz",
        f"data.file='{tmp_path / 'own.npz'}'",
        "data.partition=own",
        "cell.num_ue=6",
    )
    return [word for setting in settings for word in ("--set", setting)]


@pytest.mark.slow
def test_analyze_holds_theory_against_a_run(capsys, tmp_path, own_data):
    few = ("--samples", 8, "--steps", 12, "--points", 2)
    status, out, err = answer(
        capsys, "analyze", *QUICK, *own_data, *few, "--out", tmp_path / "theory"
    )
    assert status == 0, err
    for word in ("sigma_G^2", "gamma_F^2", "Theorem 1, corrected", "as printed", "beta tau L_F"):
        assert word in out
    assert "lower estimates" in err
    result = json.loads((tmp_path / "theory" / "theory.json").read_text())
    assert (tmp_path / "theory" / "theory.png").stat().st_size > 5_000
    assert result["measured"]["round"] == [0, 2, 4]
    assert len(result["measured"]["running_mean"]) == 4
    first, second = result["measured"]["gradient_norm_sq"][:2]
    assert result["measured"]["running_mean"][1] == pytest.approx(
        first + (second - first) / 4
    )  # rounds 0 and 1
    assert (
        result["constants"]["hessian_deviation"]["low"]
        < result["constants"]["hessian_deviation"]["high"]
    )
    for constant in result["constants"].values():
        assert constant["low"] <= constant["value"] <= constant["high"]


@pytest.mark.slow
def test_pilots_serve_a_forecast(capsys, tmp_path, own_data):
    file = tmp_path / "my pilots.json"
    status, out, err = answer(
        capsys, "pilot", *QUICK, *own_data, "--seeds", 1, "--out", file, "--json"
    )
    assert (status, json.loads(out)["pilots"]) == (0, 9), err
    status, _, err = answer(
        capsys, "pilot", *QUICK, *own_data, "--seeds", 1, "--out", file
    )  # they are there already
    assert f"9 pilots in {file}; use them with autofl plan --set" in err
    before = file.read_bytes()
    status, _, told = answer(capsys, "pilot", *QUICK, *own_data, "--seeds", 2, "--out", file)
    assert (status, file.read_bytes()) == (2, before)
    assert "name another file (--out), or replace it (--force)" in " ".join(told.split())
    use = shlex.split(err.strip().partition("use them with autofl ")[2])
    assert use[-4:] == ["--target", "0.85", "--pilots", str(file)]
    status, out, err = answer(capsys, *use, "--target", 0.01)
    assert status == 0, err
    assert "learning time [s]" in out
    assert "9 pilots" in err


JOINT = ("--planner", "joint", "--set", "cell.num_ue=2")


@pytest.mark.slow
def test_the_joint_planner_chooses_and_says_so(capsys, tmp_path):
    file = write(tmp_path / "joint.json", "cell.num_ue=2")
    status, out, err = answer(capsys, "plan", *JOINT, "--target", 0.85, "--pilots", file)
    assert status == 0, err
    for word in (
        "steps",
        "bits",
        "band",
        "CPU",
        "[MHz]",
        "[GHz]",
        "thrift",
        "chosen",
        "learning time [s]",
    ):
        assert word in out
    assert "of the least planned round time" in err
    run_it = next(line for line in err.splitlines() if line.startswith("run it: ")).removeprefix(
        "run it: autofl "
    )
    few = (
        "--set",
        "stop.rounds=1",
        "--set",
        "evaluation.test_samples=5",
        "--out",
        tmp_path / "run",
        "--json",
    )
    status, out, err = answer(capsys, *shlex.split(run_it), *few)
    assert status == 0, err
    status, out, err = answer(
        capsys, "plan", *JOINT, "--within", "10min", "--pilots", file, "--json"
    )
    told = json.loads(out)
    assert status == 0, err
    assert (told["planner"], told["algorithm"]) == ("joint", "autofl")
    assert told["choice"]["asked"] == {"within": 600.0}
    assert told["choice"]["chosen"]["sim_time"]["median"] <= 600.0
    certificate = told["certificate"]
    assert 0.0 <= certificate["upper"] - certificate["lower"] <= 1e-9 * certificate["upper"]
    assert certificate["upper"] == pytest.approx(told["round_time"])
    assert certificate["residual"] < 1e-6


@pytest.mark.slow
def test_the_command_that_a_plan_prints_runs_what_was_planned(capsys, tmp_path):
    """Cell file, data, model and the shared band too: a copy of the line in a shell is enough."""
    file = tmp_path / "my cell.toml"
    file.write_text(
        "seed = 5\n[cell]\nnum_ue = 2\nbandwidth = 3e6\n[learning]\nguard = 0.5\n", encoding="utf-8"
    )
    own = ("cell.num_ue=2", "learning.guard=0.5", "data.concentration=0.4")
    pilots = write(tmp_path / "joint.json", *own)
    asked = (
        "--planner",
        "joint",
        "--set",
        "data.concentration=0.4",
        "--target",
        0.85,
        "--total-band",
        "1MHz",
    )
    status, _, err = answer(capsys, "plan", file, *asked, "--pilots", pilots)
    assert status == 0, err
    line = next(line for line in err.splitlines() if line.startswith("run it: autofl "))
    few = (
        "--set",
        "stop.rounds=1",
        "--set",
        "evaluation.test_samples=5",
        "--out",
        tmp_path / "run",
    )
    status, _, err = answer(capsys, *shlex.split(line.removeprefix("run it: autofl ")), *few)
    assert status == 0, err
    run = autofl.load_settings(tmp_path / "run" / "config.toml")
    assert (run.seed, run.cell.count, run.learning.guard, run.data.concentration) == (
        5,
        2,
        0.5,
        0.4,
    )
    assert (run.planner.name, run.compressor.name) == ("joint", "entropy")
    assert run.cell.total_bandwidth == 1e6


@pytest.mark.parametrize("planner", ["paper", "exact", "joint"])
@pytest.mark.parametrize(
    "absurd", ["cell.max_power=2e-15", "cell.max_energy=0", "cell.small_scale_gain=1e-300"]
)
def test_json_is_json_and_no_number_is_too_absurd_to_plan_with(capsys, recwarn, planner, absurd):
    status, out, err = answer(capsys, "plan", "--json", "--planner", planner, "--set", absurd)

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    assert status == 0, err
    assert (
        json.loads(out, parse_constant=refuse)["num_feasible"] <= 2
    )  # in a very narrow band, the two nearest
    assert not recwarn.list


@pytest.mark.parametrize("scenario", ["paper", "factory-hall", "umi-phones"])
def test_what_a_round_is_made_of_stands_beside_its_time(capsys, scenario):
    """Computing, sending, downlink and overhead; what the plan proves apart from what this draw of
    the channel adds.
    """
    asked = ("plan", "--scenario", scenario, "--planner", "exact")
    told = json.loads(answer(capsys, *asked, "--json")[1])
    ue = told["ues"][told["slowest"]]
    assert told["slowest_upload_time"] == ue["upload_time"]
    whole = ue["compute_time"] + ue["upload_time"] + told["downlink_time"] + told["overhead"]
    assert told["round_time"] == pytest.approx(whole, rel=1e-12)
    assert told["planned_time"] <= told["round_time"] * (1.0 + 1e-12)
    out = " ".join(answer(capsys, *asked)[1].split())
    assert f"downlink {1e3 * told['downlink_time']:.4g} ms; overhead" in out
    assert (
        "one of many draws of the channel, with its retransmissions" in " ".join(out.split())
    ) == (told["planned_time"] < 0.999 * told["round_time"])


def test_what_binds_each_ue_is_told_for_one_round_too(capsys):
    far = ("--set", "preset=physical", "--set", "cell.distance={disc=500}")
    status, out, err = answer(capsys, "plan", "--algorithm", "fedavg-j", *far, "--explain")
    assert status == 0, err
    assert "left out; with it the round would be" in out
    assert "power, frequency, band" in out
    assert "left out: these UEs could take part" in err
    status, out, _ = answer(capsys, "plan", "--algorithm", "fedavg-j", *far, "--explain", "--json")
    ues = json.loads(out)["ues"]
    for ue in ues:
        assert (ue["bound"]["round_time"] is not None) == (ue["status"] == "left_out")
    assert answer(capsys, "plan", *JOINT, "--set", "planner.band=false")[0] == 0


@pytest.mark.slow
def test_a_choice_loads_no_torch(tmp_path):
    file = write(tmp_path / "joint.json", "cell.num_ue=2")
    code = (
        f"import sys; from autofl.cli.main import run; status = run(['plan', '--planner', 'joint', '--set',"
        f" 'cell.num_ue=2', '--target', '0.85', '--pilots', {str(file)!r}, '--json']);"
        "sys.exit(status or any(name in sys.modules for name in ('torch', 'scipy', 'matplotlib')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_data_lists_what_is_here_and_draws_a_partition(capsys, tmp_path):
    status, out, _ = answer(capsys, "data", "--json")
    assert status == 0
    assert [row["name"] for row in json.loads(out)] == [
        "mnist5k",
        "mnist",
        "fashion-mnist",
        "cifar10",
    ]
    assert json.loads(out)[0]["place"] is not None
    for partition in ("labels", "iid", "dirichlet"):
        stem = tmp_path / partition
        assert (
            answer(capsys, "data", "draw", "--out", stem, "--set", f"data.partition={partition}")[0]
            == 0
        )
        assert stem.with_suffix(".png").stat().st_size > 5_000


@pytest.mark.parametrize(
    "argv",
    [
        ["plan", "missing.toml"],
        ["plan", "."],
        ["plan", "--planner", "best"],
        ["plan", "--nonsense"],
        ["plan", "--target", "2"],
        ["plan", "--target", "0.999"],
        ["plan", "--pilots", "pilots.json"],
        ["plan", "--planner", "joint", "--within", "soon"],
        ["plan", "--planner", "joint", "--within", "-3s"],
        ["plan", "--planner", "joint", "--within", "1J"],
        ["plan", "--planner", "joint", "--within", "1.2.3s"],
        ["plan", "--planner", "joint", "--budget", "0mJ"],
        ["plan", "--planner", "joint", "--budget", "1J", "--within", "1s"],
        ["plan", "--planner", "joint", "--target", "0.85", "--budget", "1J"],
        ["plan", "--planner", "joint", "--target", "0.85", "--pilots", "missing.json"],
        ["plan", "--planner", "joint", "--total-band", "5MHz"],
        ["plan", "--planner", "exact", "--within", "60s"],
        ["plan", "--explain"],
        ["plan", "--algorithm", "sgd"],
        ["plan", "--target", "0.85", "--pilots", "missing.json"],
        ["plan", "--target", "0.85", "--set", "learning.outer_lr=0.5"],
        ["pilot", "--labels", "two"],
        ["pilot", "--labels", "0"],
        ["analyze", "--points", "1"],
        ["analyze", "--set", "arm=fedavg-1"],
        ["fly"],
        ["compare", "--seeds", "zero"],
        ["compare", "--seeds", "0"],
        ["simulate", "--algorithm", "sgd"],
        ["simulate", "--set", "data.name=mnist", "--set", "data.folder='/nowhere'"],
        ["simulate", "--set", "data.name=npz", "--set", "data.file='missing.npz'"],
        ["simulate", "--set", "cell.num_ue=5000"],
        ["simulate", "--set", "model.name=lenet5"],
        ["report", "nowhere"],
        ["report", "."],
        ["report", ".", "--target", "2"],
        ["data", "fetch", "imagenet"],
        ["deploy", "run", "--folder", "nowhere"],
        ["deploy", "run", "--resume", "nowhere"],
        ["deploy", "up", "--nodes", "0"],
        ["deploy", "up", "--set", "deploy.noise_multiplier=1"],
        ["deploy", "prepare"],
        ["deploy", "prepare", "--host", ""],
        ["deploy", "prepare", "--host", "a b"],
        ["deploy", "prepare", "--host", "server", "--port", "70000"],
        ["deploy", "prepare", "--host", "server", "--port", "65535"],
        ["deploy", "prepare", "--host", "server", "--set", "deploy.port=8000"],
        ["deploy", "prepare", "--host", "server", "--set", "deploy.port=65536"],
        ["simulate", "--ray", "nonsense address"],
        ["simulate", "--ray", "local", "--device", "cuda"],
        ["data", "draw", "--set", "data.labels=11"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_clear_line_and_status_2(capsys, tmp_path, monkeypatch, argv):
    monkeypatch.chdir(tmp_path)
    status, out, err = answer(capsys, *argv)
    assert status == 2
    last = err.strip().splitlines()[-1]
    assert last.startswith("autofl: ")
    assert "Traceback" not in err
    assert out == ""


def test_without_a_testbed_its_run_says_how_to_make_one(capsys, tmp_path):
    status, _, err = answer(capsys, "testbed", "run", "--folder", tmp_path)
    advice = f"no testbed there; start one with: autofl testbed up --folder {tmp_path}"
    assert (status, err) == (2, f"autofl: {tmp_path}: {advice}\n")


@pytest.mark.parametrize(
    "command",
    [
        *(
            "plan",
            "simulate",
            "compare",
            "sweep",
            "tune",
            "reproduce",
            "report",
            "pilot",
            "analyze",
            "list",
            "data",
            "data fetch",
            "data draw",
        ),
        *("deploy up", "deploy run", "deploy status", "deploy down", "deploy prepare"),
    ],
)
def test_every_command_has_help_with_an_example(capsys, command):
    status, out, _ = answer(capsys, *command.split(), "--help")
    assert status == 0
    assert "Example" in out


def test_what_an_interrupted_command_says_can_be_pasted_whatever_its_folder_is_called(
    capsys, tmp_path
):
    folder = tmp_path / "my runs" / "it's one"
    folder.mkdir(parents=True)
    (folder / "config.toml").touch()
    again = resuming("autofl simulate", folder, autofl.load_settings())
    with pytest.raises(typer.Exit) as ended, interruptible(folder, again):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    said = capsys.readouterr().err
    assert shlex.split(said.partition("(")[2].partition(")")[0]) == [
        "autofl",
        "report",
        str(folder),
    ]
    assert shlex.split(again) == ["autofl", "simulate", "--resume", str(folder)]
    assert again in said


def test_version_and_bare_call_answer(capsys):
    assert answer(capsys, "--version")[1].strip() == f"autofl {__version__}"
    assert "compare" in answer(capsys)[1]
    status, out, _ = answer(capsys, "list", "settings", "--json")
    assert status == 0
    assert {"key": "planner.name", "default": '"paper"'}.items() <= next(
        row for row in json.loads(out) if row["key"] == "planner.name"
    ).items()
    status, out, _ = answer(capsys, "list", "parts", "planner", "--json")
    assert status == 0
    first = {row["name"]: row["settings"][0] for row in json.loads(out)}
    assert (first["paper"]["key"], first["paper"]["default"]) == ("epsilon", "0.02")
    assert (first["fixed"]["key"], first["fixed"]["default"]) == ("num_samples", "40")
    status, out, _ = answer(capsys, "list", "arms", "--json")
    assert status == 0
    assert {
        "arm": "per-fedavg",
        "title": "Per-FedAvg",
        "algorithm": "per-fedavg",
        "planner": 'fixed (num_samples = 5, power = "max")',
        "sets": "–",
    } in json.loads(out)


@pytest.mark.parametrize("what", ["parts", "scenarios", "settings"])
def test_an_old_name_of_a_command_is_told_its_new_one(capsys, what):
    told = f"autofl: autofl {what} is called autofl list {what} now\n"
    assert answer(capsys, what, "--json") == (2, "", told)


@pytest.mark.slow
def test_arms_of_one_s_own_are_files_in_a_comparison(capsys, tmp_path, monkeypatch):
    """What all arms share is set once; an arm without such a setting leaves it out."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(
        'title = "My rule"\nalgorithm = "fedprox"\nplanner = {name = "fixed", power = "max"}\n'
        "learning = {mu = 0.2}\n"
    )
    told = ("--set", "planner.num_samples=7", "--set", "learning.outer_lr=0.05")
    words = ("compare", "--arms", "autofl,./mine.toml", "--seeds", 1, "--workers", 1, *told, *QUICK)
    status, out, err = answer(capsys, *words, "--out", "both", "--json")
    assert status == 0, err
    assert [row["label"] for row in json.loads(out)["rows"]] == ["AutoFL", "My rule"]
    ours, mine = (autofl.read_run(folder) for folder in find_runs("both"))
    assert (ours.config["planner"]["name"], mine.config["planner"]["num_samples"]) == ("paper", 7)
    assert (ours.config["learning"]["outer_lr"], mine.config["learning"]["mu"]) == (0.05, 0.2)
    assert mine.manifest["algorithm"] == "mine"

    # The folders say all of it, without the file.
    Path("mine.toml").unlink()
    assert answer(capsys, "compare", "--resume", "both", "--workers", 1)[0] == 0
    again = ("simulate", "both/mine-seed1/config.toml", "--out", "again")
    assert answer(capsys, *again)[0] == 0
    assert autofl.read_run("again").manifest["label"] == "My rule"
    assert Path("again/ues.csv").read_bytes() == Path("both/mine-seed1/ues.csv").read_bytes()


@pytest.mark.slow
def test_two_rules_of_one_name_from_two_modules_stay_apart(tmp_path, monkeypatch, capsys):
    for module in ("rule_a", "rule_b"):
        (tmp_path / f"{module}.py").write_text(
            "from dataclasses import dataclass\nfrom autofl.algorithms import FedAvg\n\n"
            "@dataclass(frozen=True)\nclass Rule(FedAvg):\n    pass\n"
        )
    monkeypatch.chdir(tmp_path)
    short = [
        "--set",
        "stop.rounds=1",
        "--set",
        "evaluation.test_samples=10",
        "--seeds",
        "1",
        "--workers",
        "1",
    ]
    assert (
        run_cli(["compare", "--algorithms", "rule_a:Rule,rule_b:Rule", "--out", "both", *short])
        == 0
    )
    said = capsys.readouterr().out
    assert "rule_a:Rule" in said
    assert "rule_b:Rule" in said


def test_own_code_that_fails_ends_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_parts.py").write_text(
        "class Broken:\n    def __init__(self):\n        raise ValueError('boom')\n"
    )
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    for name, words in (("broken_parts:Broken", "boom"), ("broken_module:X", "ZeroDivisionError")):
        assert run_cli(["plan", "--planner", name]) == 2
        said = capsys.readouterr().err.strip()
        assert words in said
        assert name in said
        assert "\n" not in said


@pytest.mark.slow
def test_with_pilots_there_is_one_plan_and_the_forecast_says_what_of(capsys, tmp_path):
    """The round in the table goes by the pace of the pilots, as the choice does."""
    file = write(tmp_path / "joint.json", "cell.num_ue=2")
    status, out, err = answer(capsys, "plan", *JOINT, "--target", 0.85, "--pilots", file, "--json")
    assert status == 0, err
    told = json.loads(out)
    run = [word for change in told["choice"]["chosen"]["settings"] for word in ("--set", change)]
    again = json.loads(answer(capsys, "plan", "--set", "cell.num_ue=2", *run, "--json")[1])
    assert told["round_time"] == pytest.approx(
        again["round_time"], rel=0.02
    )  # the pace is written with four digits
    assert [ue["local_steps"] for ue in told["ues"]] == [ue["local_steps"] for ue in again["ues"]]
    _, _, err = answer(capsys, "plan", *JOINT, "--target", 0.85, "--pilots", file)
    assert "forecast of the adapted accuracy of mlp on mnist5k" in err


@pytest.mark.slow
def test_pilots_of_a_radio_cell_run_and_a_target_out_of_reach_is_told(capsys, tmp_path, own_data):
    radio = ("--set", "channel.name=radio", "--set", "link.name=nr-64qam", *QUICK, *own_data)
    status, _, err = answer(
        capsys, "pilot", *radio, "--seeds", 1, "--target", 1.0, "--out", tmp_path / "pilots.json"
    )
    assert status == 0, err
    assert "of 9 pilots reach 1 (the best comes to" in err


@pytest.mark.slow
def test_pilots_that_do_not_come_nearer_to_their_target_end_early(capsys, tmp_path, own_data):
    slow = (
        "--set",
        "learning.outer_lr=1e-6",
        "--set",
        "stop.stalled=20",
        "--set",
        "evaluation.every=2",
    )
    asked = ("--seeds", 1, "--target", 0.999, "--out", tmp_path / "pilots.json", "--workers", 1)
    status, _, err = answer(capsys, "pilot", *own_data, *slow, *asked)
    assert status == 0, err
    pilots = [autofl.read_run(folder) for folder in find_runs(tmp_path / "pilots")]
    assert len(pilots) == 9
    assert all(
        run.manifest["stop"] == "stalled" and run.rounds["round"].max() < 200 for run in pilots
    )
    assert "0 of 9 pilots reach 0.999" in err
    assert "each other one has 1500 rounds, or 20 without progress" in " ".join(err.split())


@pytest.mark.parametrize("arm", ["autofl", "autofl-j"])
def test_a_planner_is_named_along_with_settings_that_only_it_has(capsys, arm):
    asked = (
        "plan",
        "--planner",
        "fixed",
        "--set",
        f"arm={arm}",
        "--set",
        "planner.num_samples=7",
    )
    status, out, err = answer(capsys, *asked, "--json")
    assert status == 0, err
    assert {ue["num_samples"] for ue in json.loads(out)["ues"]} <= {0, 7}


@pytest.mark.slow
def test_every_door_plans_the_same_rounds_as_a_plan(capsys, tmp_path, own_data):
    """By --planner, by a settings file, in a comparison: the joint planner decides what `autofl
    plan` shows.
    """
    file = tmp_path / "joint.toml"
    file.write_text('[planner]\nname = "joint"\n')
    all_of_them = (*own_data, *QUICK, "--set", "simulation.num_selected=6")
    planned = json.loads(answer(capsys, "plan", "--planner", "joint", *all_of_them, "--json")[1])
    doors = {
        "option": ("simulate", "--planner", "joint"),
        "file": ("simulate", file),
        "comparison": ("compare", "--planner", "joint", "--seeds", 1, "--algorithms", "autofl"),
        "comparison by file": ("compare", file, "--seeds", 1, "--algorithms", "autofl"),
    }
    sections = []
    for name, words in doors.items():
        status, _, err = answer(capsys, *words, *all_of_them, "--out", tmp_path / name)
        assert status == 0, err
        (run,) = (autofl.read_run(folder) for folder in find_runs(tmp_path / name))
        assert run.rounds["round_time"][1] == pytest.approx(planned["round_time"], rel=1e-4), name
        first = (
            run.ues["round"] == "1" if run.ues["round"].dtype.kind == "U" else run.ues["round"] == 1
        )
        assert run.ues["local_steps"][first].astype(int).tolist() == [
            ue["local_steps"] for ue in planned["ues"]
        ], name
        sections.append([run.config[part] for part in ("planner", "compressor", "learning")])
    assert all(section == sections[0] for section in sections)


@pytest.mark.parametrize(
    "door",
    [
        ("simulate", "--planner", "joint"),
        ("compare", "--planner", "joint", "--seeds", 1, "--algorithms", "autofl"),
        ("compare", "--seeds", 1, "--workers", 1, "--algorithms", "autofl-j,fedavg-j"),
        (
            "sweep",
            "--workers",
            1,
            "--set",
            "planner.name=joint",
            "--over",
            "simulation.num_selected=2,3",
        ),
        ("sweep", "--plan", "--set", "planner.name=joint", "--over", "simulation.num_selected=2,3"),
    ],
)
def test_who_plans_other_data_by_the_pace_of_mnist_is_told(capsys, tmp_path, own_data, door):
    status, _, err = answer(capsys, *door, *QUICK, *own_data, "--out", tmp_path / "run")
    assert status == 0, err
    told = " ".join(err.split())
    assert (
        "careful: the joint planner goes by the pace of MNIST, not of npz"
        in told.partition("rounds, ")[0]
    )
    assert told.count("goes by the pace") == 1
    assert "autofl plan --target ACCURACY --pilots FILE says planner.pace to set" in told


@pytest.mark.parametrize(
    ("kind", "taken"), [("uint8", "pixels"), ("int64", "ids"), ("float32", None)]
)
def test_what_rows_of_whole_numbers_are_taken_for_is_told_once(capsys, tmp_path, rng, kind, taken):
    """Numbers of words in uint8 became noise without a word."""
    import numpy as np

    y = np.arange(400) % 4
    np.savez(tmp_path / "own.npz", x=rng.integers(0, 200, (400, 6)).astype(kind), y=y)
    own = (
        "--set",
        "data.name=npz",
        "--set",
        f"data.file={tmp_path / 'own.npz'}",
        "--set",
        "data.labels=2",
    )
    words = (
        "compare",
        "--algorithms",
        "autofl,fedavg-1",
        "--seeds",
        1,
        "--workers",
        1,
        *QUICK,
        *own,
    )
    for more in ([], ["--set", "data.values=ids"] if taken else []):
        status, _, err = answer(
            capsys, *words, *more, "--out", tmp_path / f"run{len(more)}", "--force"
        )
        assert status == 0, err
        told = " ".join(err.split()).count("are taken for")
        assert told == (taken is not None and not more)
        assert not told or f"rows of {kind} are taken for {taken}; data.values" in " ".join(
            err.split()
        )


def test_a_plan_for_other_data_says_that_it_goes_by_the_pace_of_mnist(capsys, own_data):
    for planner, times in (("joint", 1), ("exact", 0)):
        status, _, err = answer(capsys, "plan", "--planner", planner, *own_data, "--json")
        assert status == 0, err
        assert err.count("goes by the pace of MNIST, not of npz") == times
