"""What the commands share: their options, where results go, and how they are shown."""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from autofl.cli.screen import say, show_table
from autofl.errors import AutoFLError, Terminated
from autofl.files import finite_or_null, make_folder, quoted
from autofl.report.table import counted

if TYPE_CHECKING:
    from autofl.config import Settings
    from autofl.records import Run
    from autofl.report.make import Report

Number = TypeVar("Number", int, float)


def keys_like(incomplete: str) -> list[str]:
    """Settings that begin like this, for shell completion."""
    from autofl.config.describe import describe

    return [f"{key}=" for key, _, _ in describe() if key.startswith(incomplete)]


def planners_like(incomplete: str) -> list[str]:
    from autofl.registry import PARTS

    return [name for name in PARTS["planner"] if name.startswith(incomplete)]


def arms_like(incomplete: str) -> list[str]:
    from autofl.config.arms import arm_names

    return [name for name in arm_names() if name.startswith(incomplete)]


def scenarios_like(incomplete: str) -> list[str]:
    from autofl.config.scenarios import scenario_names

    return [name for name in scenario_names() if name.startswith(incomplete)]


Config = Annotated[
    Path | None, typer.Argument(help="Settings in TOML; default: those of the paper.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, e.g. stop.rounds=50.",
        autocompletion=keys_like,
    ),
]
Scenario = Annotated[
    str | None,
    typer.Option(
        "--scenario",
        metavar="NAME",
        help="Start from one of `autofl list scenarios`; the file and --set override it.",
        autocompletion=scenarios_like,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, in SI units.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder for the results; default the next free one under runs/.")
]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda; default auto.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Spread the work over a Ray cluster: HOST:PORT, auto or local."
    ),
]
PlannerName = Annotated[
    str | None,
    typer.Option(
        "--planner",
        help="One of `autofl list parts planner`, or your own as module:object.",
        autocompletion=planners_like,
    ),
]
ArmName = Annotated[
    str | None,
    typer.Option(
        "--arm",
        "--algorithm",
        help="One of `autofl list arms`, a file of your own, or an algorithm as module:object.",
        autocompletion=arms_like,
    ),
]
AggregatorName = Annotated[
    str | None,
    typer.Option(
        "--aggregator", help="One of `autofl list parts aggregator`, or your own as module:object."
    ),
]
Attack = Annotated[
    str | None,
    typer.Option(
        help="What lying UEs send: one of `autofl list parts attack`, or your own as module:object."
    ),
]
Attackers = Annotated[float | None, typer.Option(help="Share of the UEs that lie; default 0.2.")]
Workers = Annotated[int | None, typer.Option(help="Runs at a time; default the number of cores.")]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Resume the runs in this folder with their settings; finished runs are kept.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing runs.")]

CONFIG = "config.toml"
"""In every folder of results: its settings."""
BAD_INPUT = 2
DIVERGED = 3
INTERRUPTED = 130
"""Exit statuses; 0 is fine."""


def device_for(device: str | None, ray: str | None) -> str | None:
    """The device of a simulation, if it can be had."""
    if ray is not None and device == "cuda":
        raise AutoFLError("--ray uses the CPUs of a cluster; leave out --device cuda")
    return device


PACED = ("mnist5k", "mnist")
"""Data whose pace the joint planner has by itself."""


def say_foregone(*runs: "Settings") -> None:
    """Warn where settings override what an arm brings along, where its planner knows other
    data only, and where the user's own samples are taken for what they may not be.
    """
    lines: list[str] = []
    for settings in runs:
        lines += _remarks_on_planning(settings)
    for settings in {settings.data: settings for settings in runs}.values():
        lines += _remarks_on_samples(settings)
    for line in dict.fromkeys(lines):
        say(line)


def _remarks_on_planning(settings: "Settings") -> list[str]:
    lines = []
    planner = settings.planner
    data = settings.data.name
    if planner.name == "joint" and "pace" not in planner.given and data not in PACED:
        lines.append(
            f"careful: the joint planner goes by the pace of MNIST, not of {data}; make pilots with autofl pilot, then"
            " autofl plan --target ACCURACY --pilots FILE says planner.pace to set"
        )
    if missed := settings.foregone():
        lines.append(f"careful: {settings.arm_name} runs with {', '.join(missed)}")
    return lines


def _remarks_on_samples(settings: "Settings") -> list[str]:
    """Whole numbers may be anything; images are what they look like."""
    data = settings.data
    if data.name != "npz" or data.values != "auto" or data.file is None:
        return []
    from autofl.experiments.data import load_data

    x = load_data(settings)[0].x
    if x.ndim != 2 or x.dtype.kind not in "iu":
        return []
    kind = "pixels" if x.dtype == "uint8" else "ids"
    return [
        f"careful: {data.file}: rows of {x.dtype} are taken for {kind}; data.values can say that they are"
        " pixels, a table or ids"
    ]


def options(given: dict[str, object]) -> list[str]:
    """Options that stand for settings, as overrides."""
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def words_of(
    config: Path | None, scenario: str | None, overrides: Sequence[str] | None
) -> list[str]:
    """What a command was given, as another one is given it on a command line."""
    words = []
    if config is not None:
        words.append(quoted(config))
    if scenario is not None:
        words += ["--scenario", shlex.quote(scenario)]
    return words + sets(overrides or ())


def sets(overrides: Sequence[str]) -> list[str]:
    """Settings as a command line gives them."""
    return [f"--set {shlex.quote(override)}" for override in overrides]


def load_planned(
    config: Path | None, scenario: str | None, said: list[str], planner: str | None
) -> "Settings":
    """The settings, with the named planner."""
    from autofl.config import load_settings

    return load_settings(config, [*said, *options({"planner.name": planner})], scenario)


def report(
    made_or_there: "Sequence[Run | Path]",
    out: Path,
    target: float,
    as_json: bool,
    html: bool = False,
    latex: bool = False,
) -> "Report":
    """Make a report on runs, or run folders, and show it: warnings first, then a table, or JSON."""
    from autofl.report.make import make_report
    from autofl.report.runs import read_runs

    runs = read_runs(made_or_there)
    say(f"drawing {counted(len(runs), 'run')} into {out}")
    made = make_report(runs, out, target)
    pages = [made.path]
    if html:
        from autofl.report.page import write_html

        pages.append(write_html(made))
    if latex:
        from autofl.report.latex import write_latex

        pages.append(write_latex(made))

    for line in made.warnings:
        say(line)
    if as_json:
        print_json(made.json())
    else:
        show_table(made.table)
        for line in made.notes:
            say(line)
        pictures = [str(path) for path in made.pictures if path.suffix == ".png"]
        say(f"pictures: {', '.join(pictures)} (and .svg); report: {', '.join(map(str, pages))}")
    return made


def report_new_runs(runs: "Sequence[Run | Path]", out: Path, target: float, as_json: bool) -> None:
    """Report on runs that were just made; if every one of them diverged, the exit status says so."""
    if report(runs, out, target, as_json).all_diverged:
        raise typer.Exit(DIVERGED)


def option_values(option: str, text: str | None, kind: type[Number]) -> list[Number]:
    """The numbers of an option that takes several with commas; none where it is not given."""
    if text is None:
        return []
    try:
        return [kind(word) for word in text.removesuffix(",").split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise AutoFLError(f"{option} {text}: write {what} with commas, for example 2,5") from None


def num_workers(given: int | None, threads: int = 1) -> int:
    """How many runs at a time: as given, or as many as there are cores."""
    if given is not None and given < 1:
        raise AutoFLError(f"--workers {given}: at least 1 is needed")
    return given if given is not None else max(1, (os.cpu_count() or 1) // threads)


def folder_for(out: Path | None, kind: str) -> Path:
    """The folder that is named; or runs/KIND-N with the first free N, made at once so that no two
    commands get the same.
    """
    return make_folder(Path("runs") / kind) if out is None else out


@contextmanager
def interruptible(folder: Path, again: str) -> Iterator[None]:
    """Around long work into a folder: when interrupted, it says what is there and which command
    continues, and ends with the status of the signal.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        if any(folder.rglob(CONFIG)):
            show = f"autofl report {quoted(folder)}"
            words = f"the rounds so far are in {folder} ({show}); {again} continues from here"
        else:
            words = "nothing was written yet, so give the command again"
        say(f"interrupted; {words}", whole=True)
        raise typer.Exit(exit_status(error)) from None


def resuming(command: str, folder: Path, settings: "Settings") -> str:
    """The command that goes on with a run or comparison."""
    from autofl.config.load import resume_words

    return f"{command} {resume_words(folder, settings.table())}"


def exit_status(error: KeyboardInterrupt) -> int:
    return 128 + error.number if isinstance(error, Terminated) else INTERRUPTED


def settings_to_resume(
    resume: Path,
    one_run: bool,
    config: Path | str | None,
    out: Path | None,
    force: bool,
    said: Sequence[str],
) -> "Settings":
    """The settings of what is in a folder; options that would change them are refused."""
    from autofl.records import check_begun, has_begun

    if config is not None or out is not None or force:
        raise AutoFLError(
            "--resume uses the settings in its folder; give no file, --out, --force or setting"
        )
    if has_begun(resume) and one_run:
        check_begun(resume)
    elif one_run or has_begun(resume) or not (resume / CONFIG).is_file():
        raise AutoFLError(
            f"{resume}: no {'run' if one_run else 'comparison'} there to resume; if it was killed before it began, give"
            " its command again"
        )
    return settings_in(resume, said)


def settings_in(folder: Path, said: Sequence[str]) -> "Settings":
    """The settings that are in a folder. What is said may repeat them, as it must for code that
    they name.
    """
    from autofl.config import dump_settings, load_settings, parse_settings
    from autofl.config.load import check_asked
    from autofl.files import read_toml

    path = folder / CONFIG
    check_asked(path, read_toml(path), said)
    settings = load_settings(path, said)
    if said and dump_settings(settings) != dump_settings(
        parse_settings(read_toml(path), str(path))
    ):
        raise AutoFLError(f"--resume uses the settings in {folder}; what you name must be the same")
    return settings


def print_json(value: Any) -> None:
    """JSON has no infinity and nothing that is not a number: null stands for them."""
    typer.echo(json.dumps(finite_or_null(value), indent=2, allow_nan=False))
