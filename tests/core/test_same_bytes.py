"""The paper's four algorithms give the bytes they gave before the code was rebuilt around its
seams.

tests/reference/bytes.json holds hashes made by `python benchmarks/same_bytes.py` at the commit
before. Sums round differently on another processor or with another library, so the hashes are
compared only where they were made.
"""

import importlib.util
import json
from pathlib import Path

import pytest

from autofl.config import load_settings
from autofl.jobs.run import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "tests" / "reference" / "bytes.json").read_text(encoding="utf-8"))


def same_bytes():
    spec = importlib.util.spec_from_file_location(
        "same_bytes", ROOT / "benchmarks" / "same_bytes.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = same_bytes()


@pytest.mark.skipif(
    BENCHMARK.fingerprint() != KEPT["machine"], reason=f"hashes were made on {KEPT['machine']}"
)
@pytest.mark.parametrize("arm", BENCHMARK.ARMS)
@pytest.mark.parametrize("name", BENCHMARK.MATRIX)
def test_a_run_gives_the_bytes_it_gave_before(name, arm, tmp_path):
    told = BENCHMARK.told(BENCHMARK.MATRIX[name], arm)
    overrides = [*told, f"arm={arm}", "simulation.device=cpu"]
    run(load_settings(overrides=overrides), tmp_path / "run")
    assert BENCHMARK.digests(tmp_path / "run") == KEPT["runs"][f"{name}: {arm}"]
