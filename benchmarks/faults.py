"""Faults injected into runs, checkpoints, disks and files, and what was seen: docs/reliability.md.

`make faults` runs all of it; the tests take a sample (tests/faults). Processes are forked, not
started anew, so that a thousand faults take minutes. Each function gives rows (fault, how many were
injected, how many ended as they must).
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from fault_commands import fuzz_commands
from fault_files import (
    ascii_terminals,
    bombs,
    fuzz_data,
    fuzz_runs,
    fuzz_settings,
    misnamed_data,
)
from fault_kills import kills
from fault_processes import (
    RESULTS,
    ROOT,
    SMALL,
    TITLES,
    Row,
    forked,
    in_container,
    keep_rows,
    sets,
    source,
)
from fault_rows import seen_list

from autofl.cli.main import main
from autofl.config import dump_settings, parse_settings
from autofl.core.round import Round
from autofl.core.stop import Stop, watched
from autofl.errors import ENDING, AutoFLError
from autofl.files import make_folder
from autofl.jobs.run import run
from autofl.lock import FolderLock, is_locked, overrule
from autofl.quality import Evaluation
from autofl.records import (
    RunWriter,
    checkpoints,
    find_runs,
    read_checkpoint,
    read_manifest,
    read_run,
)
from autofl.records.checkpoints import GENERATIONS

PAGE = ROOT / "docs" / "reliability.md"


# Faults


def flips(place: Path, num: int, dice: random.Random) -> list[Row]:
    """Bits flipped in the newest of two checkpoints, and each length it can be cut to."""
    writer = RunWriter(place, "seed = 1\n", {"algorithm": "autofl", "seed": 1})
    weights = np.random.default_rng(1).normal(size=40).astype(np.float32)
    for number in (1, 2):
        writer.write(Round(number))
        writer.write_checkpoint({"state.params.w": weights * number}, {"round": number})
    writer.close()
    newest = place / GENERATIONS[1]
    content = newest.read_bytes()
    assert read_checkpoint(place)[1]["round"] == 2

    def older(damaged: bytes) -> bool:
        newest.write_bytes(damaged)
        usable, problems = checkpoints(place)
        return [kept.round for kept in usable] == [1] and len(problems) == 1

    detected = 0
    for _ in range(num):
        damaged, place_of_bit = bytearray(content), dice.randrange(8 * len(content))
        damaged[place_of_bit // 8] ^= 1 << place_of_bit % 8
        detected += older(bytes(damaged))
    lengths = range(0, len(content), max(1, len(content) // num))
    cut = sum(older(content[:length]) for length in lengths)
    said = "detected, the older checkpoint is used"
    return [
        Row("one bit of a checkpoint flipped", num, detected, said),
        Row("a checkpoint cut short", len(lengths), cut, said),
    ]


def flipped_runs(place: Path, num: int, dice: random.Random) -> list[Row]:
    """Bits flipped in the tables, settings and manifest of a finished run, and in the settings of
    one that goes on.
    """
    folder = run(parse_settings(SMALL), place / "run").folder
    whole, detected = (
        read_run(folder).manifest,
        {"rounds.csv, ues.csv or config.toml": 0, "manifest.json": 0},
    )
    for names in detected:
        for _ in range(num):
            path = folder / dice.choice(re.findall(r"\w+\.\w+", names))
            with flipped(path, dice):
                try:
                    same = read_run(folder).manifest == whole  # a line may end with a tab as well
                    detected[names] += same and path.name == "manifest.json"
                except AutoFLError as error:
                    detected[names] += "\n" not in str(error)
    rows = [
        Row(
            f"one bit of a finished run's {names} flipped",
            num,
            held,
            "refused, one line, or without meaning",
        )
        for names, held in detected.items()
    ]
    return [*rows, _flipped_settings(place, max(3, num // 50), dice)]


@contextlib.contextmanager
def flipped(path: Path, dice: random.Random) -> Iterator[None]:
    """A file with one bit flipped, for a while."""
    content = path.read_bytes()
    damaged, place_of_bit = bytearray(content), dice.randrange(8 * len(content))
    damaged[place_of_bit // 8] ^= 1 << place_of_bit % 8
    path.write_bytes(damaged)
    try:
        yield
    finally:
        path.write_bytes(content)


def _flipped_settings(place: Path, num: int, dice: random.Random) -> Row:
    """`simulate --resume` of an interrupted run whose config.toml has one other bit, which may be
    its seed.
    """

    def stop(record: Round) -> None:
        if record.k == 2:
            raise KeyboardInterrupt

    folder, said, refused = place / "stopped", place / "stopped.txt", 0
    with contextlib.suppress(KeyboardInterrupt):
        run(parse_settings(SMALL), folder, on_round=stop)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    for _ in range(num):
        with flipped(folder / "config.toml", dice):
            status, _ = forked(lambda: main(["simulate", "--resume", str(folder)]), said)
        same = {path.name: path.read_bytes() for path in folder.iterdir()} == kept
        refused += status == 2 and "SHA-256" in said.read_text() and is_one_line(said) and same
    return Row(
        "one bit of an interrupted run's config.toml flipped",
        num,
        refused,
        "--resume refuses it, one line",
    )


def two_writers(place: Path, num: int) -> list[Row]:
    """Two processes for one folder, and several that look for a free name at once."""
    refused = 0
    for k in range(num):
        lock = FolderLock(place / f"one-{k}")
        said = place / f"said-{k}"
        status, _ = forked(lambda k=k: main(["simulate", "--out", str(place / f"one-{k}")]), said)
        refused += (
            status == 2 and "another process writes" in said.read_text() and is_one_line(said)
        )
        lock.release()
    pids = []
    for k in range(8):
        pids.append(os.fork())
        if pids[-1] == 0:
            (place / f"name-{k}").write_text(str(make_folder(place / "runs" / "simulate")))
            os._exit(0)
    for pid in pids:
        os.waitpid(pid, 0)
    names = {(place / f"name-{k}").read_text() for k in range(8)}
    stale = RunWriter(place / "stale", "seed = 1\n", {"algorithm": "autofl", "seed": 1})
    overrule(place / "stale")
    other = FolderLock(place / "stale")
    try:
        stale.write_checkpoint({"w": np.zeros(2)}, {"round": 0})
        stopped = 0
    except AutoFLError as error:
        stopped = int("taken it over" in str(error))
    other.release()
    return [
        Row(
            "`simulate` into a folder that another process holds",
            num,
            refused,
            "refused, one line, status 2",
        ),
        *(_started_together(place, command, num) for command in ("simulate", "compare")),
        Row("folders asked for at the same moment", 8, len(names), "a folder each"),
        Row("a writer that another has overruled", 1, stopped, "stops itself before it writes"),
    ]


def _started_together(place: Path, command: str, num: int) -> Row:
    """Two real commands with other seeds into one folder, started at once: short enough to follow
    one another.
    """
    one_left = 0
    for k in range(num):
        folder, told = place / f"{command}-{k}", []
        words = [
            sys.executable,
            "-m",
            "autofl",
            command,
            "--out",
            str(folder),
            "--json",
            *sets(SMALL),
        ]
        words += ["--workers", "1"] if command == "compare" else []
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started = {
            seed: subprocess.Popen([*words, "--set", f"seed={seed}"], **pipes) for seed in (11, 22)
        }
        for seed, process in started.items():
            shown, said = process.communicate(timeout=600)
            told.append((process.returncode, seed, shown, said))
        (won, seed, shown, _), (lost, _, _, said) = sorted(told)
        reported = json.loads(shown)["rows"] if won == 0 else []
        runs = [read_run(path) for path in find_runs(folder)]
        refused = lost == 2 and said.count("autofl: ") == 1 and "Traceback" not in said
        whole = all(run.config["seed"] == seed == run.manifest["seed"] for run in runs)
        one_left += (
            won == 0 and refused and whole and all(row["seeds"] == [seed] for row in reported)
        )
    seen = "one runs and reports; the other is refused, one line, status 2"
    return Row(f"two `{command}` into one folder, started at once", num, one_left, seen)


def liveness(place: Path) -> list[Row]:
    """Whether a run is alive is told by its lock, whatever process numbers mean."""
    lock = FolderLock(place / "live")
    alive = int(is_locked(place / "live"))
    lock.release()
    alive &= not is_locked(place / "live")
    swept = _swept(place)
    writer = RunWriter(place / "dead", "seed = 1\n", {"algorithm": "autofl", "seed": 1})
    writer.close()  # without a word: the manifest still says running
    honest = int(read_manifest(place / "dead")["status"] == "interrupted")
    on_disk = int(
        json.loads((place / "dead" / "manifest.json").read_text())["status"] == "interrupted"
    )
    return [
        Row("a live run, and one that has ended", 1, alive, "alive as long as its lock is held"),
        *swept,
        Row("a killed run's manifest", 1, honest & on_disk, "interrupted, with the reason"),
    ]


def _swept(place: Path) -> list[Row]:
    """A live run, and the commands that would make it anew or go on with it, from another PID
    namespace.
    """
    folder, said = place / "shared", place / "swept.txt"
    writer = RunWriter(
        folder, dump_settings(parse_settings(SMALL)), {"algorithm": "autofl", "seed": 1}
    )
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    kept = 0
    commands = [["--out", str(folder), "--force", *sets(SMALL)], ["--resume", str(folder)]]
    for words in commands:
        status = in_container(lambda words=words: main(["simulate", *words]), said)
        if status is None:
            return []
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        kept += status == 2 and "another process writes" in said.read_text() and after == before
    looked = in_container(lambda: sys.exit(read_manifest(folder)["status"] == "running"), said)
    writer.close()
    what = "a live run swept from another PID namespace"
    return [
        Row(
            what,
            len(commands) + 1,
            kept + (looked == 1),
            "refused, nothing touched; it is said to be running",
        )
    ]


def is_one_line(said: Path) -> bool:
    """Whether a command ends in one line of ours: the last is the only one, and there is no
    traceback.
    """
    text = said.read_text()
    ours = [line for line in text.splitlines() if line.startswith(("autofl: ", "interrupted"))]
    return "Traceback" not in text and len(ours) == 1 and text.splitlines()[-1] == ours[0]


def signals(place: Path) -> list[Row]:
    """Signals to end in the middle of a run, each once, and twice within milliseconds, as an
    impatient user does.
    """
    ended, seconds, cases = (
        0,
        0.0,
        [(number, gap) for number in ENDING for gap in (None, 0.0005, 0.003, 0.01)],
    )
    endless = [
        "--set",
        "stop.rounds=1000000",
        "--set",
        "evaluation.test_samples=5",
        "--set",
        "simulation.device=cpu",
    ]
    for case, (number, gap) in enumerate(cases):
        folder, said = place / str(case), place / f"{case}.txt"

        def work(folder: Path = folder, number: int = number, gap: float | None = gap) -> None:
            parent = os.getpid()
            if os.fork() == 0:  # waits for some rounds, then tells its parent to end
                while (
                    not (folder / "rounds.csv").is_file()
                    or (folder / "rounds.csv").read_bytes().count(b"\n") < 9
                ):
                    time.sleep(0.02)
                (folder.parent / "sent").write_text(str(time.time()))
                os.kill(parent, number)
                if gap is not None:
                    time.sleep(gap)
                    os.kill(parent, number)
                os._exit(0)
            for handled in ENDING:
                signal.signal(handled, signal.SIG_DFL)
            main(["simulate", "--out", str(folder), *endless])

        status, _ = forked(work, said)
        seconds = max(seconds, time.time() - float((place / "sent").read_text()))
        manifest, kept = read_manifest(folder), checkpoints(folder)[0]
        fine = status == 128 + number and manifest["status"] == "interrupted" and is_one_line(said)
        why = "by a user" if number == signal.SIGINT else number.name
        ended += bool(fine and kept and why in manifest["problem"])
    seen = f"a checkpoint, the reason, one line; within {max(seconds, 0.1):.1f} s (79,510 weights)"
    return [
        Row(
            "SIGINT, SIGTERM, SIGHUP of `simulate`, once, and twice within 0.5 to 10 ms",
            len(cases),
            ended,
            seen,
        )
    ]


def full_disk(place: Path) -> list[Row]:
    """A file that may not grow, and a disk of 700 kB where one can be mounted."""
    rows = []

    def limited(folder: Path, limit: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        main(["simulate", "--out", str(folder), *sets(SMALL)])

    held, limits = 0, (0, 100, 3_000, 100_000)
    for limit in limits:
        folder, said = place / f"limit-{limit}", place / f"limit-{limit}.txt"
        status, _ = forked(lambda folder=folder, limit=limit: limited(folder, max(limit, 1)), said)
        manifest = (
            json.loads(text) if (text := _text(folder / "manifest.json")) else {"status": "none"}
        )
        held += status == 2 and manifest["status"] in ("failed", "none") and is_one_line(said)
    rows.append(
        Row(
            "no more bytes may be written, at four sizes",
            len(limits),
            held,
            "failed, status 2, no traceback",
        )
    )
    disk = place / "disk"
    disk.mkdir()
    if (
        os.geteuid() == 0
        and os.system(f"mount -t tmpfs -o size=280k tmpfs {disk} 2>/dev/null") == 0
    ):
        said = place / "disk.txt"
        try:
            status, _ = forked(
                lambda: main(["simulate", "--out", str(disk / "run"), *sets(SMALL)]), said
            )
            manifest = json.loads((disk / "run" / "manifest.json").read_text())
            fine = (
                status == 2
                and manifest["status"] == "failed"
                and "No space left" in manifest["problem"]
            )
            rows.append(
                Row(
                    "a disk that is full",
                    1,
                    int(fine and is_one_line(said)),
                    "failed, with the reason, one line",
                )
            )
        finally:
            os.system(f"umount {disk}")
        rows.append(_full_at_the_beginning(disk))
    return rows


def _full_at_the_beginning(disk: Path) -> Row:
    """Disks of so few blocks that the lock, the reserve, the manifest, the settings or a table has
    no room.
    """
    held, blocks = 0, range(1, 9)
    for num in blocks:
        os.system(f"mount -t tmpfs -o size={4 * num}k tmpfs {disk}")
        said, folder = disk.parent / "beginning.txt", disk / "run"
        try:
            status, _ = forked(
                lambda folder=folder: main(["simulate", "--out", str(folder), *sets(SMALL)]), said
            )
            manifest = (
                json.loads(text)
                if (text := _text(folder / "manifest.json"))
                else {"status": "none"}
            )
            honest = manifest["status"] == "none" or (
                manifest["status"] == "failed" and str(folder) in manifest["problem"]
            )
            named = any(f"autofl: {place}" in said.read_text() for place in (folder, disk))
            held += status == 2 and honest and named and is_one_line(said)
            if not (status == 2 and honest and named and is_one_line(said)):
                print(num, status, manifest, said.read_text()[-400:], flush=True)
        finally:
            os.system(f"umount {disk}")
    return Row(
        "a disk that is full at the beginning",
        len(blocks),
        held,
        "the file is named; no manifest says running",
    )


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def plateau(num: int) -> list[Row]:
    """The cost of the stop rules at the last of many evaluations, against the first hundred."""
    stop = Stop(rounds=10 * num, plateau=True, target_accuracy=0.99)
    history: tuple = ()
    times = []
    for k in range(num):
        begin = time.perf_counter()
        evaluation = Evaluation(adapted_accuracy=0.5 + 0.3 * (k % 2))
        assert stop.reason(k, 0.0, (*history, (k, evaluation))) is None
        history = watched(history, k, evaluation)
        times.append(time.perf_counter() - begin)
    early, late = np.median(times[: num // 10]), np.median(times[-num // 10 :])
    said = f"{1e6 * late:.0f} us each at the end, {1e6 * early:.0f} us at the beginning"
    return [Row(f"{num:,} evaluations with a plateau rule", 1, int(late < 2 * early), said)]


# The page


def inject(size: str, only: list[str]) -> Iterator[tuple[str, list[Row]]]:
    """Every kind of fault, or some, as often as a size says."""
    num_kills, num_flips, num_files, num_lines = {
        "full": (50, 1000, 10_000, 500),
        "quick": (4, 60, 200, 40),
    }[size]
    kinds: dict[str, Callable[[Path, random.Random], list[Row]]] = {
        "kills": lambda place, dice: kills(place, num_kills, dice),
        "flips": lambda place, dice: flips(place, num_flips, dice),
        "tables": lambda place, dice: flipped_runs(place, num_flips, dice),
        "writers": lambda place, _: two_writers(place, 3),
        "liveness": lambda place, _: liveness(place),
        "signals": lambda place, _: signals(place),
        "disk": lambda place, _: full_disk(place),
        "settings": lambda place, dice: fuzz_settings(place, num_files, dice),
        "folders": lambda place, dice: fuzz_runs(place, num_files, dice),
        "data": lambda place, dice: fuzz_data(place, num_files, dice),
        "bombs": lambda place, _: bombs(place),
        "commands": lambda place, dice: fuzz_commands(place, num_lines, dice),
        "ascii": lambda place, _: ascii_terminals(place),
        "misnamed": lambda *_: misnamed_data(),
        "rules": lambda *_: plateau(20_000),
    }
    for kind in only or kinds:
        with tempfile.TemporaryDirectory() as folder:
            yield kind, kinds[kind](Path(folder), random.Random(15))


def draw_page(results: Path = RESULTS, page: Path = PAGE) -> None:
    """docs/reliability.md from the counts beside it, every file a table, and the tests that inject
    them.
    """
    text = [
        "# What was broken on purpose, and what happened",
        "",
        "`make faults` injects the faults of the first table; `make fault-deploy`, `make messages` and `make soak`",
        "inject the others. If the two numbers of a row are equal, every fault ended correctly. The tests in",
        "`tests/faults` inject a sample in every CI run. `SIZE=quick make faults` takes minutes; `make fuzz` runs only",
        "the random files and commands.",
        "",
        '"The same bytes" means that the work goes on and ends with the SHA-256 that it has without the fault. "One',
        'line" is what the command says, without a traceback. A code is the beginning of the SHA-256 of `src/autofl`;',
        "`python benchmarks/faults.py --code` prints that of the files here.",
    ]
    for table, title in TITLES.items():
        if not (results / f"{table}.json").is_file():
            continue
        counted = json.loads((results / f"{table}.json").read_text(encoding="utf-8"))
        made = sorted({(made["date"], made["source"]) for made in counted["made"].values()})
        text += [
            "",
            f"## {title}",
            "",
            f"Injected on {' and '.join(f'{date} (code {code})' for date, code in made)}.",
            "",
            "| fault | injected | ended correctly | what that means |",
            "|---|---|---|---|",
        ]
        rows = [row for of_kind in counted["kinds"].values() for row in of_kind]
        text += [
            f"| {row['fault']} | {row['injected']:,} | {row['held']:,} | {row['seen']} |"
            for row in rows
        ]
    text += ["", "## What once went wrong", "", *seen_list()]
    page.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=["full", "quick"], default="full")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument(
        "--only", nargs="*", default=[], help="kinds of faults; the others keep their numbers"
    )
    parser.add_argument(
        "--code", action="store_true", help="only print the code that rows are marked with"
    )
    chosen = parser.parse_args()
    if chosen.code:
        sys.exit(print(source()))
    failed = False
    for kind, rows in inject(chosen.size, chosen.only):
        keep_rows("store", kind, rows, {}, chosen.out)
        for row in rows:
            failed |= row.held < row.injected
            print(f"{row.held:6d} of {row.injected:6d}  {row.fault}: {row.seen}", flush=True)
    draw_page(chosen.out, chosen.page)
    sys.exit(failed)
