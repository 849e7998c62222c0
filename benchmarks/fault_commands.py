"""Command lines drawn at random over every command and option there is: each works or ends in one
line.

Options, values and settings are read off the program itself, so a new one is drawn by itself. A
command that works may
go on for long: it is told to end, and must. `deploy up` and `testbed up` are left out, since they
leave processes behind by design, and so are downloads and Ray clusters that answer.
"""

import os
import random
import resource
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fault_processes import SMALL, Row, sets, speak

from autofl.cli.main import _program
from autofl.cli.main import main as run_cli
from autofl.config import parse_settings
from autofl.config.describe import describe
from autofl.jobs.run import run
from autofl.registry import PARTS

LEFT_OUT = ("deploy up", "testbed up")
CHEAP = {**SMALL, "data": {"name": "mnist5k"}}
"""What a line begins with: a full data set alone takes more than half of the memory that is
granted.
"""
PATIENCE, ENDING = 6.0, 20.0
"""Seconds after which a command is told to end, and which it then has on a shared machine; 10 s
were asked for.
"""
MOST_MEMORY = 300 * 2**20
ODD = [
    *(
        "",
        " ",
        "0",
        "-1",
        "-0.0",
        "1e999",
        "nan",
        "-inf",
        "9" * 30,
        "9" * 5000,
        "1e-300",
        "0x10",
        "1_000",
        "½",
        "٣",
    ),
    *(
        "é→😀",
        "\udcff\udcfe",
        "a=b",
        "--",
        "-",
        "=",
        ".",
        "..",
        "[",
        "{",
        "[]",
        "{}",
        "true",
        "null",
        "'",
        '"',
        "%s",
    ),
    *(
        "x" * 5000,
        "a." * 500,
        "\n",
        "\t\r",
        "\x1b[31m",
        "*",
        "~",
        "$HOME",
        "a:b",
        "os:system",
        "json:",
        ":",
        "1,2,,x",
    ),
    *(
        "[" * 3000,
        "1,1e999,nan",
        "5MHz",
        "60s",
        "-3J",
        "1e400s",
        "[[[1]]]",
        "{a=1}",
        "{uniform=[1, 0]}",
        "fig2b",
        "all",
    ),
]
ROUND_NUMBERS = ["1", "2", "3", "5", "0.5", "0.9", "10", "20", "100"]


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its words."""

    def below(group: Any, words: str) -> Iterator[tuple[str, Any]]:
        for name in group.list_commands(None):
            command = group.get_command(None, name)
            if hasattr(command, "commands"):
                yield from below(command, f"{words}{name} ")
            else:
                yield f"{words}{name}", command

    return below(_program(), "")


def make_places(place: Path) -> list[str]:
    """Files and folders that a command may be given: some right, most wrong."""
    made = run(parse_settings({**SMALL, "stop": {"rounds": 2}}), place / "made").folder
    (place / "empty").mkdir()
    (place / "good.toml").write_text("[stop]\nrounds = 2\n")
    (place / "bad.toml").write_bytes(b"a = [\xff")
    (place / "wrong.toml").write_text("[cell]\nnum_eu = 3\n")
    np.savez(place / "data.npz", x=np.zeros((30, 4)), y=np.arange(30) % 3)
    (place / "locked").mkdir(mode=0o500)
    others = [
        "/dev/null",
        "/dev/zero",
        "/",
        "/nowhere/at/all",
        "/proc/self/status",
        "x" * 300,
        "folder/none.toml",
    ]
    names = ["empty", "good.toml", "bad.toml", "wrong.toml", "data.npz", "locked", "."]
    return [str(made), str(made / "config.toml"), *(str(place / name) for name in names), *others]


def a_setting(dice: random.Random, keys: list[str]) -> str:
    """KEY=VALUE: a real key more often than not, and any value."""
    key = (
        dice.choice(keys)
        if dice.random() < 0.9
        else dice.choice([*ODD, "cell", "stop.rounds.x", "data.nmae"])
    )
    return (
        key
        + ("=" if dice.random() < 0.95 else "")
        + dice.choice([*ODD, *ROUND_NUMBERS, *ROUND_NUMBERS, *names()])
    )


def names() -> list[str]:
    return [name for kind in PARTS.values() for name in kind]


def a_value(
    option: Any, dice: random.Random, places: list[str], keys: list[str], odd: float
) -> str:
    """A value for an option: of its type, or anything."""
    if "--set" in option.opts:
        return a_setting(dice, keys)
    if dice.random() < odd:
        return dice.choice(ODD)
    if "path" in option.type.name:
        return dice.choice(places[:2] if odd == 0.0 and option.name != "out" else places)
    if option.type.name in ("integer", "float"):
        return dice.choice(ROUND_NUMBERS)
    usual = {
        "scale": ["smoke"],
        "device": ["cpu"],
        "names": ["fig2b", "joint-paper"],
        "target": ["0.3"],
    }
    known = [*PARTS.get(option.name, []), *usual.get(option.name, [])]
    anything = [*names(), *ROUND_NUMBERS, "cuda", "nowhere:1", "5,10"]
    return dice.choice(known if known and dice.random() < 0.8 else anything)


def a_line(dice: random.Random, places: list[str], keys: list[str], small: list[str]) -> list[str]:
    """The words of a command line: one thing wrong at most in half of them, anything in the others."""
    name, command = dice.choice([one for one in commands() if one[0] not in LEFT_OUT])
    words, careful = name.split(), dice.random() < 0.5
    if any("--set" in option.opts for option in command.params):
        words += small  # first: what is drawn may overrule it
    if name == "analyze":
        words += ["--samples", "8", "--points", "2", "--steps", "3"]
    for option in command.params:
        argument, flag = option.param_type_name == "argument", getattr(option, "is_flag", False)
        often = (1.0 if option.required else 0.1) if careful else 0.6 if argument else 0.25
        often = 0.6 if careful and "--set" in option.opts else often
        while dice.random() < often:
            value = [] if flag else [a_value(option, dice, places, keys, 0.0 if careful else 0.35)]
            words += [*(() if argument else (dice.choice(option.opts),)), *value]
            often *= 0.3 if careful else 0.8
            if careful and option.required:
                break
    if name == "reproduce" and "--scale" not in words:
        words += ["--scale", "smoke"]
    for _ in range(0 if careful else dice.choice([0, 0, 0, 1, 2])):  # a slip of the hand
        at = dice.randrange(len(words) + 1)
        words[at:at] = [
            dice.choice([*ODD, "--nothing", "-x", "--help", "--json=1", "--seeds", "extra"])
        ]
    if words[:2] == ["data", "fetch"]:
        words = [word for word in words if word not in ("mnist", "fashion-mnist", "cifar10")]
    return [word for word in words if word not in ("local", "auto")]


def ends_well(words: list[str], place: Path) -> str | None:
    """What is wrong with how a command line ends in a process of its own; None where nothing is."""
    idle = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    said, begin = place / "said.txt", time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(words, place, said)
    told = False
    while True:
        gone, status, used = os.wait4(pid, os.WNOHANG)
        if gone:
            break
        waited = time.monotonic() - begin
        if waited > PATIENCE and not told:
            os.kill(pid, signal.SIGTERM)
            told = True
        elif waited > PATIENCE + ENDING:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"hangs after {said.read_text(errors='replace')[-200:]!r}"
        time.sleep(0.005)
    text = said.read_text(encoding="utf-8", errors="replace")
    code = os.waitstatus_to_exitcode(status)
    if "Traceback" in text:
        return text[text.index("Traceback") :][-1500:]
    if code not in (0, 2, 3, *((143,) if told else ())):
        return f"status {code}: {text[-300:]!r}"
    if code in (2, 143) and not text.strip().splitlines()[-1].startswith(
        ("autofl: ", "interrupted")
    ):
        return f"no line of ours: {text[-300:]!r}"
    more = used.ru_maxrss * 1024 - idle
    return f"{more / 2**20:.0f} MiB above idle" if more > MOST_MEMORY else None


def _child(words: list[str], place: Path, said: Path) -> None:
    status = 70
    try:
        os.chdir(place)
        null, sink = (
            os.open(os.devnull, os.O_RDONLY),
            os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        )
        for number, handle in enumerate((null, sink, sink)):
            os.dup2(handle, number)
        speak("utf-8")
        run_cli(words)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def fuzz_commands(place: Path, num: int, dice: random.Random, show: bool = True) -> list[Row]:
    """So many command lines, each in a folder of its own."""
    import matplotlib.pyplot  # noqa: F401 - here, once for all children

    places, keys, small = make_places(place), [row[0] for row in describe()], sets(CHEAP)
    well = 0
    for _ in range(num):
        words = a_line(dice, places, keys, small)
        with tempfile.TemporaryDirectory(dir=place) as folder:
            problem = ends_well(words, Path(folder))
        well += problem is None
        if problem is not None and show:
            shown = [word if len(word) < 80 else f"{word[:20]}... ({len(word)})" for word in words]
            print(f"autofl {shown}: {problem}", flush=True)
    return [
        Row(
            "command lines, drawn at random",
            num,
            well,
            "work, or one line; within 300 MB; end when told to",
        )
    ]
