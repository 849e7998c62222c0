"""What the injection of faults shares: rows of the page and where they are kept, a child process, a
small run.
"""

import ctypes
import gc
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "faults"
TITLES = {
    "store": "Runs, checkpoints, disks and files",
    "deploy-run": "A deployment of three devices",
    "messages": "What a device says",
    "soak": "Long runs",
}
"""The tables of docs/reliability.md, in this order, and the files that they are drawn from."""
SMALL = {
    "cell": {"num_ue": 4},
    "simulation": {"num_selected": 2, "device": "cpu"},
    "stop": {"rounds": 3},
    "evaluation": {"every": 2, "test_samples": 5, "train_samples": 20},
    "compare": {"arms": ["autofl", "autofl-j"], "seeds": 1},
}


@dataclass(frozen=True)
class Row:
    """A fault, how often it was injected, how often it ended as it must, and what that is."""

    fault: str
    injected: int
    held: int
    seen: str


def source() -> str:
    """The first digits of the SHA-256 of our code, by which a count tells what it was made with."""
    code = hashlib.sha256()
    for path in sorted((ROOT / "src" / "autofl").rglob("*.py")):
        code.update(f"{path.relative_to(ROOT).as_posix()}\n".encode() + path.read_bytes())
    return code.hexdigest()[:12]


def keep_rows(
    table: str, kind: str, rows: Sequence[Row], figures: Mapping[str, object], out: Path = RESULTS
) -> None:
    """The rows of one kind into the file of a table, with the date and the code; other kinds stay
    as they are.
    """
    file = out / f"{table}.json"
    counts = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    counts.setdefault("kinds", {})[kind] = [asdict(row) for row in rows]
    counts.setdefault("made", {})[kind] = {"date": time.strftime("%Y-%m-%d"), "source": source()}
    if figures:
        counts.setdefault("figures", {})[kind] = dict(figures)
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


def forked(work: Callable[[], object], stderr: Path | None = None) -> tuple[int, int]:
    """Exit status and signal of a child that does this work; what it says goes through a pipe to a
    file.

    What the parent had made is never collected in the child: gRPC's queues wait, when they are, for
    a thread that only the parent has.
    """
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 70
        gc.freeze()
        try:
            os.close(source)
            for number in (1, 2):
                os.dup2(sink, number)
            speak("utf-8")
            work()
            status = 0
        except SystemExit as error:
            status = int(error.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(sink)
    with open(source, "rb") as said:
        text = said.read()
    if stderr is not None:
        stderr.write_bytes(text)
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended) if not os.WIFSIGNALED(ended) else -1, os.WTERMSIG(ended)


CLONE_NEWPID, CLONE_NEWUSER = 0x20000000, 0x10000000


def in_container(work: Callable[[], object], said: Path) -> int | None:
    """Exit status of a process that does this work as number 1 of a PID namespace, as in a
    container; None where the system allows no namespace.
    """

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWPID) and libc.unshare(CLONE_NEWPID | CLONE_NEWUSER):
            sys.exit(71)

        def first() -> None:
            assert os.getpid() == 1
            work()

        sys.exit(forked(first, said)[0])

    status, _ = forked(enter)
    return None if status == 71 else status


def speak(encoding: str) -> None:
    """Standard output and error in this encoding, as a terminal of it would set them."""
    files = [open(number, "w", encoding=encoding, closefd=False, buffering=1) for number in (1, 2)]  # noqa: SIM115
    sys.stdout, sys.stderr = files


def sets(table: dict) -> list[str]:
    """A table of settings as words of a command line."""
    return [
        word
        for section, values in table.items()
        for key, value in values.items()
        for word in ("--set", f"{section}.{key}={json.dumps(value)}")
    ]
