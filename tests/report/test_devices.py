"""What a deployment measured, from a run written by hand."""

import json

import pytest

from autofl.core.round import Round
from autofl.errors import AutoFLError
from autofl.quality import Evaluation
from autofl.records import DeviceRecord, RunWriter, read_run
from autofl.records.checks import sealed
from autofl.report.devices import facts, lines, plot_devices
from autofl.report.runs import group
from reference.records import hand_made


@pytest.fixture
def run(tmp_path):
    """Two rounds of two UEs: 0.2 s each by the model; 4 and 6 s measured, and UE 1 sends NaN in the
    second.
    """
    about = {"algorithm": "autofl", "seed": 1, "num_ue": 2, "num_weights": 10, "data": "npz"}
    writer = RunWriter(tmp_path / "run", "seed = 1\n", about)
    writer.write(Round(0, evaluation=Evaluation(1.0, 1.0, 0.1, 0.1)))
    for k, outcome in ((1, "ok"), (2, "0.weight: not finite")):
        quality = Evaluation(1.0, 1.0, 0.5, 0.5)
        writer.write(
            hand_made(k, 0.2 * k, 0.2, [0, 1], [1e-3, 3e-3], [True, outcome == "ok"], quality)
        )
        last = 4.0 if k == 1 else 6.0
        writer.write_devices(
            k,
            [
                DeviceRecord(0, "ok", 3.0, 0.5, bytes_down=60.0, bytes_up=50.0),
                DeviceRecord(1, outcome, last, 0.7, energy=2.0, bytes_down=60.0, bytes_up=50.0),
            ],
        )
    writer.finish("finished", privacy={"epsilon": 4.5, "delta": 1e-5, "releases": 2})
    writer.close()
    return read_run(tmp_path / "run")


def test_measured_and_modelled_stand_side_by_side(run):
    found = facts(run)
    assert found["updates_asked"] == 4
    assert found["updates_used"] == 3
    assert found["left_out"] == {"not finite": 1}
    assert found["round_time"] == {
        "measured": 5.0,
        "modelled": 0.2,
    }  # to the last reply of each round
    assert found["train_time"] == {"measured": 0.5, "modelled": 0.1}
    assert found["energy"] == {"measured": 2.0, "modelled": 1e-3}  # of the one device that tells
    assert found["bytes_up"] == {"measured": 50.0, "modelled": 40.0}
    said = " ".join(lines(run))
    for words in (
        "3 of 4 updates used",
        "1 not finite",
        "epsilon = 4.5",
        "5 s measured, 0.2 s modelled",
    ):
        assert words in said


def test_the_time_of_a_round_is_that_of_all_of_it_as_its_overhead_is(tmp_path):
    """4 s to the last reply, 0.7 s of them computing, and 9 s in all: a report said 8.3 s of 4 s
    were beyond that.
    """
    about = {"algorithm": "autofl", "seed": 1, "num_ue": 2, "num_weights": 10, "data": "npz"}
    writer = RunWriter(tmp_path / "run", "seed = 1\n", about)
    writer.write(Round(0, evaluation=Evaluation(1.0, 1.0, 0.1, 0.1)))
    writer.write(
        hand_made(1, 0.2, 0.2, [0, 1], [1e-3, 1e-3], [True, True], Evaluation(1.0, 1.0, 0.5, 0.5))
    )
    writer.write_devices(
        1, [DeviceRecord(ue, "ok", 3.0 + ue, 0.7, round_time=9.0) for ue in (0, 1)]
    )
    writer.write_devices(
        1, [DeviceRecord(-1, "introduction: no"), *2 * [DeviceRecord(1, "evaluation: no")]]
    )
    writer.finish("finished")
    writer.close()
    run = read_run(tmp_path / "run")
    found = facts(run)
    assert found["round_time"]["measured"] == 9.0
    assert found["overhead"]["median"] == pytest.approx(8.3)
    assert "other replies refused: introduction: no, UE 1: evaluation: no (2 times)" in lines(run)


def test_a_deployment_and_a_simulation_of_the_same_settings_can_be_compared(run, tmp_path):
    folder = tmp_path / "simulated"
    folder.mkdir()
    for name in ("config.toml", "manifest.json", "rounds.csv", "ues.csv"):
        (folder / name).write_bytes((run.folder / name).read_bytes())
    with pytest.raises(AutoFLError, match=r"devices\.csv is missing"):
        read_run(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]["devices.csv"]
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))
    assert list(group([run, read_run(folder)])) == ["AutoFL, on devices", "AutoFL"]


def test_the_picture_is_drawn(run, tmp_path):
    paths = plot_devices([run], tmp_path)
    assert [path.name for path in paths] == ["devices.png", "devices.svg"]
    assert "not finite" in paths[1].read_text()


def test_a_table_is_cut_back_to_the_round_a_run_goes_on_from(tmp_path):
    writer = RunWriter(tmp_path, "seed = 1\n", {"algorithm": "autofl", "seed": 1})
    writer.write(Round(0))
    for k in (1, 2):
        writer.write(hand_made(k, 0.2 * k, 0.2, [0, 1], [1e-3, 1e-3], [True, True], Evaluation()))
        writer.write_devices(k, [DeviceRecord(0, "ok"), DeviceRecord(1, "ok")])
        if k == 1:
            writer.write_checkpoint({}, {"round": 1})
    writer.close()
    RunWriter.go_on(tmp_path, after=1).close()
    again = read_run(tmp_path)
    assert again.rounds["round"].tolist() == [0, 1]
    assert again.ues["round"].tolist() == [1, 1]
    assert again.devices["outcome"].tolist() == ["ok", "ok"]
    assert again.manifest["status"] == "interrupted"  # closed before its end
