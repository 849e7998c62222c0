"""Commands say what they said before the house was rebuilt: tests/reference/outputs, made by
benchmarks/outputs.py.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def benchmark():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("outputs", ROOT / "benchmarks" / "outputs.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


OUTPUTS = benchmark()


def kept(name):
    return OUTPUTS.lasting(
        json.loads((OUTPUTS.SETTINGS / f"{name}.json").read_text(encoding="utf-8"))
    )


def assert_alike(now, before, where=""):
    """Equal but for the last digits of numbers, which another processor may round otherwise."""
    assert type(now) is type(before), where
    if isinstance(now, dict):
        assert now.keys() == before.keys(), where
        for key in now:
            assert_alike(now[key], before[key], f"{where}.{key}")
    elif isinstance(now, list):
        assert len(now) == len(before), where
        for index, (one, other) in enumerate(zip(now, before, strict=True)):
            assert_alike(one, other, f"{where}[{index}]")
    elif isinstance(now, float):
        np.testing.assert_allclose(now, before, rtol=1e-6, err_msg=where)
    else:
        assert now == before, where


@pytest.mark.parametrize("name", OUTPUTS.NAMES)
def test_plans_and_sweeps_are_what_they_were(name, tmp_path):
    before = kept(name)
    for command, now in OUTPUTS.planned(name, tmp_path).items():
        assert_alike(now, before[command], command)


@pytest.mark.skipif(
    OUTPUTS.fingerprint() != kept("paper")["machine"],
    reason="runs were recorded on another machine",
)
@pytest.mark.parametrize("name", OUTPUTS.NAMES)
def test_comparisons_and_reports_are_what_they_were(name, tmp_path):
    before = kept(name)
    for command, now in OUTPUTS.outputs(name, tmp_path).items():
        assert now == before[command], command
