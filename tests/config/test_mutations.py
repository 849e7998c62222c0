"""2,000 broken settings files: each ends in exit status 2 and one clear line, never in a traceback."""

import copy
import math
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w

from autofl.cli.main import run as run_cli
from autofl.config import dump_settings, load_settings
from autofl.config.describe import describe

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
BASES = [
    tomllib.loads(dump_settings(load_settings().resolved())),
    *(tomllib.loads(p.read_text()) for p in EXAMPLES),
]
# Values no setting takes. A string and a list of strings fit nowhere but where names are chosen;
# those get bad names.
WRONG = ["", "seven", [], [[]], ["x"], {"a": {"b": 1}}, {}, -1, -0.5, -1e300, 1e300, 10**30, math.nan, math.inf,
         -math.inf, [1.0, -2.0], [math.nan], {"uniform": 3}, {"uniform": [5, 1]}, {"normal": [0, 1]}]  # fmt: skip
MAY_BE_NEGATIVE = {"cell.noise_dbm_per_hz", "cell.snr_threshold_db"}
FREE_TEXT = {"data.folder", "data.file"}


def leaves(table, prefix=()):
    for key, value in table.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from leaves(value, (*prefix, key))


def put(table, path, value):
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value


def drop(table, path):
    for key in path[:-1]:
        table = table[key]
    return table.pop(path[-1])


def mutated(dice: random.Random) -> tuple[str, str]:
    """A broken file and what was broken in it."""
    table = copy.deepcopy(dice.choice(BASES))
    path = dice.choice([leaf for leaf in leaves(table) if ".".join(leaf) not in FREE_TEXT])
    kind = dice.choice(["value", "value", "value", "key", "law", "text"])
    if kind == "value":
        value = dice.choice(WRONG)
        if value == {} or (value in (-1, -0.5) and ".".join(path) in MAY_BE_NEGATIVE):
            value = "wrong"
        put(table, path, value)
        return tomli_w.dumps(table), f"{'.'.join(path)} = {value!r}"
    if kind == "key":  # a typo in a key: two letters swapped, one lost or doubled
        key, place = path[-1], dice.randrange(max(len(path[-1]) - 1, 1))
        typo = dice.choice(
            [key[:place] + key[place + 1 :], key + key[-1], key[:place] + "_" + key[place:]]
        )
        put(table, (*path[:-1], typo or "x"), drop(table, path))
        return tomli_w.dumps(table), f"{'.'.join(path)} written {typo!r}"
    if kind == "law":  # a law whose only key is missing or joined by another
        table.setdefault("cell", {})["max_energy"] = dice.choice(
            [{"uniform": []}, {"uniform": [1, 2], "mean": 1}]
        )
        return tomli_w.dumps(table), "law"
    text = tomli_w.dumps(table)
    place = dice.randrange(len(text))
    broken = dice.choice(
        [
            "= = 1\n",
            "[",
            '"""',
            "\x00",
            "[cell\n",
            f"x = {'9' * 5000}\n",
            "a" + ".a" * 3000 + " = 1\n",
        ]
    )
    return text[:place] + "\n" + broken + text[place:], f"text {broken[:8]!r}"


@pytest.mark.parametrize("part", range(8))
def test_a_broken_file_is_one_line_and_status_2(part, tmp_path, capsys):
    dice = random.Random(part)
    path = tmp_path / "broken.toml"
    for _ in range(250):
        text, what = mutated(dice)
        path.write_text(text, encoding="utf-8")
        status = run_cli(["plan", str(path), "--json"])
        out, err = capsys.readouterr()
        assert status == 2, f"{what}: status {status}\n{out[:200]}{err}"
        assert err.count("\n") == 1, f"{what}: {err}"
        assert err.startswith("autofl: ")
        assert len(err) < 500
        assert out == ""


def test_the_same_holds_for_the_real_program(tmp_path):
    for number, content in enumerate([b"\xff\xfe\x00", b"[cell]\nmax_power = -1\n", b"stop = 3\n"]):
        path = tmp_path / f"{number}.toml"
        path.write_bytes(content)
        for command in ("plan", "simulate", "compare"):
            done = subprocess.run(
                [sys.executable, "-m", "autofl", command, str(path)],
                capture_output=True,
                text=True,
                cwd=tmp_path,
            )
            assert done.returncode == 2
            assert done.stderr.count("\n") == 1
            assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()  # nothing was begun


def test_the_unbroken_files_are_fine(tmp_path, capsys):
    for number, base in enumerate(BASES):
        path = tmp_path / f"{number}.toml"
        path.write_text(tomli_w.dumps(base))
        assert run_cli(["plan", str(path), "--json"]) == 0
    capsys.readouterr()


def test_every_setting_is_described():
    assert all(meaning for _, _, meaning in describe())
    assert len(describe()) > 40
