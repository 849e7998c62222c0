"""A trace of gains: what is in the file is what is used, and bad files are refused in one line."""

import numpy as np
import pytest

from autofl.channels.tables import read_table
from autofl.channels.trace import Trace
from autofl.cli.main import run as autofl
from autofl.errors import AutoFLError
from autofl.network import Cell, rate
from autofl.network.links.table import Levels

GAINS = np.array([[1e-8, 2e-8, 3e-8], [4e-8, 5e-8, 6e-8]])


@pytest.fixture(params=["csv", "npz"])
def file(request, tmp_path):
    path = tmp_path / f"gains.{request.param}"
    if request.param == "csv":
        np.savetxt(path, GAINS, delimiter=",")
    else:
        np.savez(path, gain=GAINS)
    return str(path)


def test_rows_are_rounds_and_columns_ues(file):
    cell = Cell(distance=np.array([1.0, 2.0]))  # the first two columns serve
    np.testing.assert_array_equal(Trace(file).gain(cell, 5, 1), GAINS[0, :2])
    np.testing.assert_array_equal(Trace(file).gain(cell, 6, 2), GAINS[1, :2])
    np.testing.assert_array_equal(Trace(file).gain(cell, 5, 3), GAINS[0, :2])  # and again
    with pytest.raises(AutoFLError, match="2 rounds, round 3"):
        Trace(file, after_end="stop").gain(cell, 5, 3)


def test_too_few_ues_are_refused(file):
    with pytest.raises(AutoFLError, match="gains of 3 UEs; the cell has 4"):
        Trace(file).gain(Cell(distance=np.ones(4)), 1, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1e-8,,3e-8\n", "column 2: nan"),
        ("1e-8,-2e-8\n", "column 2: -2e-08"),
        ("1e-8,inf\n", "column 2: inf"),
        ("1e-8,x\n", "column 2: nan"),
        ("1,2\n3\n", "not a table"),
        ("", "a row for each round"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_bad_file_ends_in_one_line(tmp_path, capsys, text, words):
    path = tmp_path / "gains.csv"
    path.write_text(text)
    with pytest.raises(AutoFLError, match=words):
        Trace(str(path))
    assert autofl(["plan", "--set", "channel.name=trace", "--set", f'channel.file="{path}"']) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


def test_an_array_of_three_dimensions_is_refused(tmp_path):
    np.savez(tmp_path / "deep.npz", gain=np.ones((2, 3, 4)))
    with pytest.raises(AutoFLError, match=r"deep\.npz: shape \(2, 3, 4\)"):
        Trace(str(tmp_path / "deep.npz"))


def test_a_missing_file_and_a_missing_array(tmp_path):
    with pytest.raises(AutoFLError, match="cannot be read"):
        Trace(str(tmp_path / "none.csv"))
    np.savez(tmp_path / "wrong.npz", other=GAINS)
    with pytest.raises(AutoFLError, match="'gain' is missing"):
        Trace(str(tmp_path / "wrong.npz"))


TIME = np.array(
    [10.0, 11.0, 13.0]
)  # the clock of whoever measured it; the run starts with the first row
TIMED = np.array([[1e-8, 2e-8], [3e-8, 2e-8], [3e-8, 8e-8]])


@pytest.fixture(params=["csv", "npz"])
def timed(request, tmp_path):
    path = tmp_path / f"timed.{request.param}"
    if request.param == "csv":
        rows = np.column_stack([TIME, TIMED])
        np.savetxt(path, rows, delimiter=",", header="time,a,b", comments="")
    else:
        np.savez(path, gain=TIMED, time=TIME)
    return str(path)


def test_gains_are_interpolated_to_the_time_of_a_round(timed):
    trace, cell = Trace(timed), Cell(distance=np.ones(2))
    for time, expected in (
        (0.0, [1e-8, 2e-8]),
        (0.25, [1.5e-8, 2e-8]),
        (2.0, [3e-8, 5e-8]),
        (3.0, [3e-8, 8e-8]),
    ):
        np.testing.assert_allclose(trace.at(time).gain(cell, 1, 9), expected, rtol=1e-12)
    np.testing.assert_allclose(
        trace.at(3.25).gain(cell, 1, 9), [1.5e-8, 2e-8], rtol=1e-12
    )  # again from the start
    np.testing.assert_allclose(
        trace.gain(cell, 1, 2), [3e-8, 2e-8], rtol=1e-12
    )  # no clock: a second a round
    with pytest.raises(AutoFLError, match=r"ends after 3 s, 3\.5 s is asked for"):
        Trace(timed, after_end="stop").at(3.5).gain(cell, 1, 9)


def test_a_header_as_numpy_writes_it_names_the_time_too(tmp_path):
    rows = np.column_stack([TIME, TIMED])
    np.savetxt(tmp_path / "timed.csv", rows, delimiter=",", header="time,a,b")
    table = Trace(str(tmp_path / "timed.csv")).table
    np.testing.assert_array_equal(table.time, TIME - 10.0)
    np.testing.assert_array_equal(table.value, TIMED)


def test_a_rate_on_a_staircase_comes_out_as_that_of_its_level(tmp_path):
    """Levels of 1 and 2 bit/s/Hz from 0 and 6 dB: 2 Mbit/s in 1 MHz need 6 dB, 1.7 Mbit/s only the
    0 dB of 1.
    """
    law = Levels(levels=[[1.0, 0.0], [2.0, 6.0]]).law()
    cell = Cell(distance=np.ones(4), bandwidth=1e6, max_power=0.1, link=law)
    (tmp_path / "rates.csv").write_text("2e6,1.7e6,9e6,0.5e6\n")
    gain = Trace(str(tmp_path / "rates.csv"), quantity="rate").gain(cell, 1, 1)
    np.testing.assert_allclose(
        gain * 0.1 / cell.noise_power, [10**0.6, 1.0, 10**0.6, 0.5], rtol=1e-9
    )
    np.testing.assert_allclose(rate(cell, gain, np.full(4, 0.1)), [2e6, 1e6, 2e6, 0.0], rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,a\n0,1\n2,1\n1,1\n", "row 3: time 1 s follows 2 s; times must rise"),
        ("time,a\n0,1\n0,1\n", "times must rise"),
        ("time,a\n0,1\n,1\n", "row 2: time is nan"),
        ("time,a\n0,1\n1,1\n2,1\n90,1\n", "a gap of 88 s after row 3"),
        ("time,a\n0,1\n1,\n", "row 2, column 1: nan"),
        ("time,a\n0,1\n1,-1\n", "row 2, column 1: -1"),
        ("time,a\n0,1\n", "at least two"),
    ],
)
def test_a_bad_table_over_time_ends_in_one_line(tmp_path, text, words):
    path = tmp_path / "timed.csv"
    path.write_text(text)
    with pytest.raises(AutoFLError, match=words) as refused:
        Trace(str(path))
    assert "\n" not in str(refused.value)


def test_a_longer_gap_can_be_allowed(tmp_path):
    (tmp_path / "timed.csv").write_text("time,a\n0,1\n1,1\n2,1\n90,1\n")
    assert Trace(str(tmp_path / "timed.csv"), longest_gap=100.0).table.duration == 90.0


@pytest.mark.parametrize(
    ("quantity", "value"), [("gain_db", -80.0), ("snr_db", 34.0), ("rate", 11.2e6)]
)
def test_decibels_snrs_and_rates_become_gains(tmp_path, quantity, value):
    from autofl.network import rate, snr

    np.savez(tmp_path / "trace.npz", **{quantity: np.full((2, 3), value)})
    cell = Cell(distance=np.ones(3))
    gain = Trace(str(tmp_path / "trace.npz"), quantity=quantity).gain(cell, 1, 1)
    at_full_power = {
        "gain_db": 10.0 * np.log10(gain),
        "snr_db": 10.0 * np.log10(snr(cell, gain, cell.max_power)),
    }
    at_full_power["rate"] = rate(cell, gain, cell.max_power)
    np.testing.assert_allclose(at_full_power[quantity], value, rtol=1e-12)


def test_a_plan_uses_the_trace(tmp_path, capsys):
    import json

    np.savetxt(tmp_path / "gains.csv", np.full((2, 20), 3e-8), delimiter=",")
    assert (
        autofl(
            [
                "plan",
                "--json",
                "--set",
                "channel.name=trace",
                "--set",
                f'channel.file="{tmp_path}/gains.csv"',
            ]
        )
        == 0
    )
    ues = json.loads(capsys.readouterr().out)["ues"]
    assert {ue["channel_gain"] for ue in ues} == {3e-8}
    assert {ue["success_probability"] for ue in ues} == {None}  # a trace has no law


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1,2\n\n3,4\n", 2),
        ("1,2\n# a round is missing\n3,4\n", 2),
        ("#t,u0,u1\n0,1,2\n1,3,4\n", 1),
        ("# by hand\n#time,u0,u1\n0,1,2\n1,3,4\n", 1),
    ],
)
def test_no_line_of_a_table_is_passed_over(tmp_path, text, line):
    (tmp_path / "gains.csv").write_text(text)
    with pytest.raises(AutoFLError, match=f"line {line} is empty or a comment"):
        read_table(tmp_path / "gains.csv")


def test_a_header_that_begins_with_time_may_say_its_unit(tmp_path):
    (tmp_path / "gains.csv").write_text("# time [s],u0,u1\n0,1,2\n1,3,4\n\n")
    table = read_table(tmp_path / "gains.csv")
    np.testing.assert_array_equal(table.value, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(table.time, [0, 1])
