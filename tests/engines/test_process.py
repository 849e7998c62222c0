"""A process that trains keeps its memory: the same tensors again cost hardly any new pages."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from autofl.engines import use_machine

pytestmark = pytest.mark.slow

PAGES = """
import resource, torch
from autofl.engines import use_machine
use_machine(1)
def work():
    some = [torch.ones(2_000_000) for _ in range(6)]  # 8 MB each
    return sum(float(each[0]) for each in some)
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, torch.get_num_threads())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is left alone elsewhere")
def test_memory_is_kept_from_round_to_round():
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_", "LD_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", PAGES], capture_output=True, text=True, check=True, env=own
    )
    pages, threads = map(int, done.stdout.split())
    assert threads == 1
    assert (
        pages < 6_000
    )  # ten times 48 MB are 117,000 pages of 4 KB; without `use_machine` 13,000 and more are new


def test_where_malloc_is_not_glibcs_it_is_left_alone(monkeypatch):
    def refused(_):
        raise AssertionError("no library is opened")

    monkeypatch.setattr("autofl.engines.process.platform.libc_ver", lambda: ("", ""))
    monkeypatch.setattr("autofl.engines.process.ctypes.CDLL", refused)
    before = torch.get_num_threads()
    try:
        use_machine(2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
