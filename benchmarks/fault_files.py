"""Broken and hostile files, and terminals that know ASCII alone: everything ends in one line,
within bounds.
"""

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
from autofl.data import find, load, read_device, read_idx, read_npz
from autofl.errors import AutoFLError
from autofl.jobs.run import run
from autofl.records import read_run
from autofl.records.checks import sealed

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
    depth = dice.choice([5, 50, 500])
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
    """The files of a finished run, of which each has a sum, and the tables of one that was killed
    before its first checkpoint.
    """
    finished = run(parse_settings({**SMALL, "stop": {"rounds": 2}}), place / "finished").folder
    killed = place / "killed"
    shutil.copytree(finished, killed)
    manifest = json.loads((killed / "manifest.json").read_text())
    (killed / "manifest.json").write_text(json.dumps(sealed(manifest | {"status": "interrupted"})))
    tables = ("rounds.csv", "ues.csv")
    names = {finished: ("manifest.json", "config.toml", *tables), killed: tables}
    well = 0
    for _ in range(num):
        folder = dice.choice(list(names))
        path = folder / dice.choice(names[folder])
        whole = path.read_bytes()
        path.write_bytes(mutated(whole, dice))
        well += _ends_well(lambda folder=folder: read_run(folder))
        path.write_bytes(whole)
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
    readers = {"bomb.gz": read_idx, "long.gz": read_idx}
    held = [_is_refused_within_bounds(reader, place / name) for name, reader in readers.items()]
    return [
        Row(
            f"gzip files that unpack to {size / 1e9:.1f} GB",
            len(held),
            sum(held),
            "one line, within 300 MB",
        )
    ]


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


def ascii_terminals(place: Path) -> list[Row]:
    """Every table of ours on a terminal that knows ASCII alone."""
    made = run(parse_settings(SMALL), place / "shown").folder
    commands = [
        ["plan"],
        ["report", str(made), "--out", str(place)],
        ["list", "parts"],
        ["data"],
        ["list", "settings"],
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
