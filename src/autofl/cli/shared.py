"""What the commands share: their options, where results go, and how they are shown."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from autofl.cli.screen import say, show_table
from autofl.errors import AutoFLError
from autofl.report.table import Table

Config = Annotated[Path | None, typer.Argument(help="Settings in TOML; the paper's defaults without one.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. stop.rounds=50."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines, SI units.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; default the next free one under runs/.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda; default auto.")]
Ray = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Spread the work over a Ray cluster: HOST:PORT, auto or local.")
]
Workers = Annotated[int | None, typer.Option(help="Runs at a time; default the number of cores.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite runs that are there already.")]

INTERRUPTED = 130


def device_for(device: str | None, ray: str | None) -> str | None:
    """The device of a simulation, if it can be had."""
    if ray is not None and device == "cuda":
        raise AutoFLError("--ray spreads over the CPUs of a cluster; leave --device cuda out")
    return device


def options(given: dict[str, object]) -> list[str]:
    """Options that stand for settings, as overrides."""
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def report(folders: Sequence[Path], out: Path, target: float, as_json: bool) -> None:
    """Table on the screen and as Markdown, pictures, JSON: from run folders alone."""
    from autofl.records import read_run
    from autofl.report.devices import facts, lines, plot_devices
    from autofl.report.plots import plot_runs
    from autofl.report.summary import as_json as json_of
    from autofl.report.summary import note, summarise, table

    runs = [read_run(folder) for folder in folders]
    rows = summarise(runs, target)
    say(f"drawing {len(runs)} run{'s' if len(runs) > 1 else ''} into {out}")
    deployed = [run for run in runs if run.devices]
    pictures = [*plot_runs(runs, out, target), *plot_devices(deployed, out)]
    names = [path for path in pictures if path.suffix == ".png"]
    links = "".join(f"\n![{path.stem}]({path.name})\n" for path in names)
    measured = [line for run in deployed for line in lines(run)]
    text = "".join(f"\n{line}\n" for line in [note(rows), *measured])
    (out / "report.md").write_text(f"{table(rows, target).markdown()}\n{text}{links}", encoding="utf-8")
    if as_json:
        devices = {"devices": [facts(run) for run in deployed]} if deployed else {}
        return print_json({**json_of(rows, target), **devices, "pictures": [str(path) for path in pictures]})
    show_table(table(rows, target))
    for line in [note(rows), *measured]:
        say(line)
    say(f"pictures: {', '.join(str(path) for path in names)} (and .svg); table: {out / 'report.md'}")
    return None


def show_reproduction(results: Path, out: Path, page: Path | None, names: list[str] | None, as_json: bool) -> None:
    """Pictures, tables and verdicts of a reproduction; on the screen those of the named figures, or all."""
    from autofl.reproduction.page import judge_all
    from autofl.reproduction.page import report as report_all
    from autofl.reproduction.results import read_results

    say(f"drawing into {out}")
    lines = report_all(results, out, page, names)
    judged = [each for each in judge_all(read_results(results)) if each.found is not None]
    if as_json:
        return print_json(
            {
                "figures": [
                    {"name": x.figure, "picture": str(x.picture), "paper": x.says, "measured": x.measured}
                    for x in lines
                ],
                "claims": [
                    {"name": x.claim.name, "claim": x.claim.words, "measured": x.measured, "verdict": x.verdict}
                    for x in judged
                ],
            }
        )
    claims = [[x.claim.words, x.measured, x.verdict] for x in judged]
    show_table(Table(["claim", "median [interval]", "verdict"], claims))
    figures = [[x.figure, x.says, x.measured, str(x.picture)] for x in lines]
    show_table(Table(["figure", "the paper says", "measured", "picture"], figures))
    say(f"tables and claims: {out / 'report.md'}; pictures also as .svg")
    return None


def num_workers(given: int | None, threads: int = 1) -> int:
    """How many runs at a time: as told, or as many as the cores carry."""
    if given is not None and given < 1:
        raise AutoFLError(f"--workers {given}: at least 1 is needed")
    return given if given is not None else max(1, (os.cpu_count() or 1) // threads)


def free_folder(kind: str) -> Path:
    """runs/KIND-N with the first N that is free."""
    number = 1
    while (folder := Path("runs") / f"{kind}-{number}").exists():
        number += 1
    return folder


def leave(folder: Path) -> NoReturn:
    say(f"interrupted; the rounds so far are in {folder} (autofl report {folder})")
    raise typer.Exit(INTERRUPTED)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
