"""Broken and hostile files, and terminals that know ASCII alone: everything ends in one line,
within bounds.
"""

import contextlib
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fault_processes import SMALL, Row, forked, sets, speak

from autofl.channels.trace import read_table
from autofl.cli.main import run as run_cli
from autofl.config import load_settings, parse_settings
from autofl.core.round import Round
from autofl.data import find, load, read_device, read_idx, read_npz
from autofl.errors import AutoFLError
from autofl.experiments.run import run
from autofl.lock import FolderLock
from autofl.records import read_checkpoint, read_run
from autofl.records.checks import OWN_SUM, sealed
from autofl.report.runs import diverged_words, guarded_words, unheard_words
from autofl.report.summary import note, summarise

ROOT = Path(__file__).parents[1]


def mutated(content: bytes, dice: random.Random) -> bytes:
    """Bytes flipped, cut, doubled, or words of trouble put in."""
    words = [
        b"[" * 3000,
        b"{" * 3000,
        b"9" * 5000,
        b"nan",
        b"-1",
        b"\0",
        b"\xff",
        b"1e999",
        b"null",
        b'""',
        b",",
        b"\n",
        b"a.",
    ]
    damaged = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 5])):
        place, kind = dice.randrange(len(damaged) + 1), dice.randrange(5)
        if kind == 0 and damaged:
            damaged[place % len(damaged)] = dice.randrange(256)
        elif kind == 1:
            del damaged[place : place + dice.choice([1, 5, 100, 10_000])]
        elif kind == 2:
            damaged[place:place] = dice.choice(words)
        elif kind == 3:
            damaged[place:place] = damaged[place : place + dice.choice([5, 100])]
        elif lines := bytes(damaged).split(b"\n"):
            dice.shuffle(lines) if dice.random() < 0.1 else lines.__setitem__(
                dice.randrange(len(lines)), dice.choice(words)
            )
            damaged = bytearray(b"\n".join(lines))
    return bytes(damaged)


def deep_settings(dice: random.Random) -> tuple[str, list[str]]:
    """A settings file and --set options that nest, repeat or overflow."""
    depth = dice.choice([5, 50, 500, 5000])
    texts = [
        "x = " + "[" * depth + "]" * depth,
        "cell = " + "{a = " * depth + "1" + "}" * depth,
        "a" + ".a" * depth + " = 1",
        "[" + "a." * depth + "a]\nb = 1",
        "[cell]\nmax_power = " + "[" * depth + "1" + "]" * depth,
        f"seed = {'9' * depth}",
    ]
    options = [
        "cell" + ".a" * depth + "=1",
        "stop.rounds=" + "[" * depth,
        "stop.rounds=" + "[" * depth + "]" * depth,
        "data=" + "{a = " * depth + "1" + "}" * depth,
        "seed=" + "9" * depth,
        "=" * depth,
    ]
    return dice.choice(texts), [dice.choice(options)] if dice.random() < 0.5 else []


def _ends_well(attempt: Callable[[], object]) -> bool:
    """Whether something works or says in one line why not."""
    try:
        attempt()
    except AutoFLError as error:
        return "\n" not in str(error)
    except Exception:
        traceback.print_exc()
        return False
    return True


def fuzz_settings(place: Path, num: int, dice: random.Random) -> list[Row]:
    path, well = place / "fuzz.toml", 0
    examples = [file.read_bytes() for file in sorted((ROOT / "examples").glob("*.toml"))]
    for _ in range(num):
        options: list[str] = []
        if dice.random() < 0.5:
            text, options = deep_settings(dice)
            path.write_text(text)
        else:
            path.write_bytes(mutated(dice.choice(examples), dice))
        well += _ends_well(lambda options=options: load_settings(path, options))
    return [Row("settings files and --set options, broken", num, well, "read, or one line")]


def fuzz_runs(place: Path, num: int, dice: random.Random) -> list[Row]:
    folder = run(parse_settings({**SMALL, "stop": {"rounds": 2}}), place / "fuzzed").folder
    names = ["manifest.json", "config.toml", "rounds.csv", "ues.csv"]
    manifest = json.loads((folder / "manifest.json").read_text())
    sums = ("sha256", "format", OWN_SUM)
    unsummed = json.dumps(
        {key: value for key, value in manifest.items() if key not in sums}, indent=2
    ).encode()
    whole = {name: (folder / name).read_bytes() for name in names}
    well = 0

    def report() -> None:
        runs = [read_run(folder)]
        rows = summarise(runs, 0.85)
        note(rows)
        for words in (diverged_words, guarded_words, unheard_words):
            words(runs)

    for _ in range(num):
        (folder / "manifest.json").write_bytes(
            unsummed
        )  # without checksums, or every fault is found at once
        name = dice.choice(names)
        (folder / name).write_bytes(mutated(unsummed if name == names[0] else whole[name], dice))
        well += _ends_well(report)
        (folder / name).write_bytes(whole[name])
    return [Row("run folders, broken", num, well, "read, or one line")]


def fuzz_data(place: Path, num: int, dice: random.Random) -> list[Row]:
    rng, path, well = np.random.default_rng(1), place / "fuzz.npz", 0
    x, y = rng.integers(0, 255, (30, 6)).astype(np.uint8), np.arange(30) % 3
    bases = []
    for save in (np.savez, np.savez_compressed):
        save(path, x=x, y=y, ue=y, train=y > 0, num_classes=3, gain=np.abs(rng.normal(size=(3, 4))))
        bases.append(path.read_bytes())
    idx = bytes([0, 0, 8, 2, 0, 0, 0, 30, 0, 0, 0, 6]) + x.tobytes()
    for _ in range(num):
        reader = dice.choice([read_npz, read_device, read_table, read_idx])
        base = dice.choice([idx, gzip.compress(idx)]) if reader is read_idx else dice.choice(bases)
        content = (
            hostile_npz(dice)
            if reader is not read_idx and dice.random() < 0.3
            else mutated(base, dice)
        )
        path.write_bytes(content)
        well += _ends_well(lambda reader=reader: reader(path))
    return [Row("data files, broken", num, well, "read, or one line")]


def hostile_npz(dice: random.Random) -> bytes:
    """An archive whose arrays claim what they have not."""
    packed = io.BytesIO()
    with zipfile.ZipFile(
        packed, "w", dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    ) as archive:
        for name in ("x", "y", "gain", "ue", "train", "num_classes"):
            shape = dice.choice(
                [
                    "(4,)",
                    "(10**9,)",
                    "(2**62, 2**62)",
                    "(-4,)",
                    "()",
                    "(4, 0)",
                    "(True,)",
                    "[4]",
                    "(" * 500,
                ]
            )
            kind = dice.choice(
                ["<f8", "|u1", "|O", "<U9", "<i8", "|b1", "<M8[s]", "[('a', '<f8')]", "x" * 9000]
            )
            head = (
                f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
                + b"\n"
            )
            body = dice.choice([b"", bytes(32), b"\xff" * 32, bytes(4)])
            magic = b"\x93NUMPY" + dice.choice([b"\x01\x00", b"\x02\x00", b"\x09\x00"])
            length = (
                len(head).to_bytes(2 if magic[-2] == 1 else 4, "little")
                if len(head) < 2**16
                else b"\xff\xff"
            )
            archive.writestr(
                f"{name}.npy", dice.choice([magic + length + head + body, magic, b"", head])
            )
    return packed.getvalue()


def bombs(place: Path, size: int = 3_200_000_000) -> list[Row]:
    """Small files that unpack to much, in a process that may take 300 MB more."""
    blocks = size // 10**7
    head = bytes([0, 0, 8, 1]) + size.to_bytes(4, "big")
    rest = blocks * gzip.compress(bytes(10**7))  # gzip files one after the other are one file
    (place / "bomb.gz").write_bytes(gzip.compress(head) + rest)
    says_short = bytes([0, 0, 8, 1, 0, 0, 0, 9])
    (place / "long.gz").write_bytes(gzip.compress(says_short) + rest)
    with (
        zipfile.ZipFile(place / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        header = {"descr": "|u1", "fortran_order": False, "shape": (10**7 * blocks,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(blocks):
            member.write(bytes(10**7))
    (place / "long.toml").write_text("a = [" + "[]," * (size // 50) + "]")
    readers = {
        "bomb.gz": read_idx,
        "long.gz": read_idx,
        "bomb.npz": read_npz,
        "long.toml": load_settings,
    }
    held = [_is_refused_within_bounds(reader, place / name) for name, reader in readers.items()]
    large = _large_files(place, size)
    refused = [_is_refused_within_bounds(reader, path) for path, reader in large.items()]
    shown = [path.name for path, fine in zip(large, refused, strict=True) if not fine]
    if shown:
        print(f"not refused within bounds: {', '.join(shown)}", flush=True)
    return [
        Row(
            f"files that unpack to {size / 1e9:.1f} GB",
            len(held),
            sum(held),
            "one line, within 300 MB",
        ),
        Row(LARGE, len(refused), sum(refused), "one line, within 300 MB and 20 s"),
    ]


LARGE = (
    "keys of 20,000 parts and 200,000 tables in TOML and `--set`, a trace of one line, arrays that grow where they are"
    " used, holes of gigabytes in checkpoints and tables, a cell as long as all others, a pipe as lock or settings"
)


def _is_refused_within_bounds(reader: Callable, path: Path) -> bool:
    """Whether a process that may take 300 MB and 20 s more refuses a file in one line."""

    def limited() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 2**20,) * 2)
        signal.alarm(20)
        try:
            reader(path)
        except AutoFLError as error:
            print(f"autofl: {error}", file=sys.stderr)
            sys.exit(2 if "memory" not in str(error) and "\n" not in str(error) else 3)

    return forked(limited, path.parent / f"{path.name}.txt")[0] == 2


def _large_files(place: Path, size: int) -> dict[Path, Callable]:
    """Files that once took gigabytes or minutes, and what reads them."""
    readers: dict[str, Callable] = {}
    for name, text in {
        "key.toml": "a" + ".a" * 20_000 + " = 1\n",
        "header.toml": "[" + "a." * 20_000 + "a]\n",
        "quoted.toml": '"a"' + " . 'a'" * 20_000 + " = 1\n",
        "tables.toml": "".join(f"[a{k}]\n" for k in range(200_000)),
        "inline.toml": "cell = {a" + ".a" * 20_000 + " = 1}\n",
    }.items():
        (place / name).write_text(text)
        readers[name] = load_settings
    (place / "set.txt").write_text("cell={a" + ".a" * 20_000 + "=1}")
    readers["set.txt"] = lambda path: load_settings(None, [path.read_text()])
    (place / "line.csv").write_text("1," * (15 * 10**6))
    (place / "rows.csv").write_text("1,1,1,1,1,1,1,1\n" * 10**6)
    np.savez_compressed(place / "trace.npz", gain=np.ones((size // 20, 1), dtype=np.bool_))
    np.savez_compressed(
        place / "data.npz", x=np.zeros((size // 30, 1), np.uint8), y=np.zeros(size // 30, np.int8)
    )
    readers |= {
        "line.csv": read_table,
        "rows.csv": read_table,
        "trace.npz": read_table,
        "data.npz": read_npz,
    }
    whole = run(parse_settings(SMALL), place / "whole").folder
    for name in ("hole", "grown", "wide", "pipe", "toml-pipe", "checkpoint"):
        shutil.copytree(whole, place / name)
    os.truncate(place / "hole" / "rounds.csv", size)
    _without_sums(place / "grown")
    os.truncate(place / "grown" / "ues.csv", size)
    _without_sums(place / "wide")
    cells = (place / "wide" / "ues.csv").read_text().splitlines()
    column = cells[0].split(",").index("status")
    long = cells[1].split(",")
    long[column] = "x" * 60_000
    (place / "wide" / "ues.csv").write_text(
        "\n".join([cells[0], ",".join(long), *[cells[1]] * 30_000]) + "\n"
    )
    readers |= {"hole": read_run, "grown": read_run, "wide": read_run}
    for name, file in {"pipe": ".lock", "toml-pipe": "config.toml"}.items():
        (place / name / file).unlink()
        os.mkfifo(place / name / file)
    _without_sums(place / "toml-pipe")
    readers |= {"pipe": FolderLock, "toml-pipe": read_run}
    os.truncate(_stopped(place / "checkpoint"), size)
    readers["checkpoint"] = read_checkpoint
    return {place / name: reader for name, reader in readers.items()}


def _without_sums(folder: Path) -> None:
    """As another program may have made it: without checksums nothing is found by them."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))


def _stopped(folder: Path) -> Path:
    """The one checkpoint of a run that was stopped after two rounds."""

    def stop(record: Round) -> None:
        if record.k == 2:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run(parse_settings(SMALL), folder, on_round=stop)
    return folder / "checkpoint-0"


def ascii_terminals(place: Path) -> list[Row]:
    """Every table of ours on a terminal that knows ASCII alone."""
    made = run(parse_settings(SMALL), place / "shown").folder
    commands = [
        ["plan"],
        ["report", str(made), "--out", str(place)],
        ["parts"],
        ["data"],
        ["settings"],
        ["--help"],
    ]
    fine = 0
    for words in commands:

        def spoken(words: list[str] = words) -> None:
            speak("ascii")
            sys.exit(run_cli(words))

        said = place / "ascii.txt"
        fine += forked(spoken, said)[0] == 0 and said.read_bytes().isascii()
    return [
        Row("commands on an ASCII terminal", len(commands), fine, "the whole table, in ASCII"),
        Row(
            "`simulate` into a folder whose name an ASCII system cannot spell",
            1,
            _odd_folder(place),
            "run and report",
        ),
    ]


def _odd_folder(place: Path) -> int:
    """A real command where Python itself knows ASCII alone, as in a container without a locale."""
    plain = {
        "LANG": "C",
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    folder = place / "d\u00e9\u2192"
    command = [
        sys.executable,
        "-m",
        "autofl",
        "--log-file",
        "log.txt",
        "simulate",
        "--out",
        str(folder),
        *sets(SMALL),
    ]
    done = subprocess.run(command, env={**os.environ, **plain}, cwd=place, capture_output=True)
    page = folder / "report.md"
    whole = done.returncode == 0 and b"Traceback" not in done.stderr and done.stderr.isascii()
    return int(whole and page.is_file() and "d\u00e9\u2192" in page.read_text(encoding="utf-8"))


def misnamed_data() -> list[Row]:
    """The real MNIST, where it is here, given as Fashion-MNIST."""
    place = find("mnist")
    if place is None:
        return []
    refused = 0
    try:
        load("fashion-mnist", place)
    except AutoFLError as error:
        refused = int("files of mnist" in str(error))
    return [Row("`data.folder` of MNIST given as Fashion-MNIST", 1, refused, "refused, one line")]
