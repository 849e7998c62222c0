"""How a process that trains uses the machine: its threads, and the memory it keeps."""

import ctypes
import platform

import torch

# of glibc's malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def use_machine(threads: int) -> None:
    """Train with this many threads, and keep freed memory for the next round.

    The bits of a sum depend on how many threads share it. Left to itself, glibc gives tensors of
    some megabytes back to the system when they are freed and asks for new pages a moment later, in
    every round. Without glibc, memory is left alone.
    """
    torch.set_num_threads(threads)
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)  # the most glibc takes
        libc.mallopt(_M_TRIM_THRESHOLD, 2**30)
