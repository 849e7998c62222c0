"""A process that trains keeps its memory: the same tensors again cost no new pages."""

import platform
import subprocess
import sys

import pytest
import torch

PAGES = """
import resource, sys, torch
from autofl.algorithms import use_machine
if sys.argv[1] == "kept":
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
    said = [
        subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, text=True, check=True).stdout.split()
        for how in ("kept", "left alone")
    ]
    (kept, threads), (left_alone, _) = ([int(word) for word in words] for words in said)
    assert threads == 1
    assert kept * 10 < left_alone  # 10 times 48 MB are 120,000 pages


def test_the_machine_is_used_where_malloc_is_not_glibcs(monkeypatch):
    monkeypatch.setattr("autofl.algorithms.process.platform.libc_ver", lambda: ("", ""))
    before = torch.get_num_threads()
    try:
        from autofl.algorithms import use_machine

        use_machine(2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
