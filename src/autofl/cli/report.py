"""autofl report: tables and pictures of existing runs."""

from pathlib import Path
from typing import Annotated

import typer

from autofl.cli.screen import say
from autofl.cli.shared import Json, report
from autofl.errors import AutoFLError
from autofl.files import quoted

EXAMPLE = "Example: autofl report runs/demo --target 0.8 --html --out report"


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or folders that contain them."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for pictures and table; default the first one given."),
    ] = None,
    target: Annotated[float, typer.Option(help="Accuracy for time to accuracy.")] = 0.85,
    html: Annotated[
        bool, typer.Option("--html", help="Also write one self-contained file, report.html.")
    ] = False,
    latex: Annotated[
        bool,
        typer.Option(
            "--latex", help="Also write latex/: booktabs tables, pictures as PDF, report.tex."
        ),
    ] = False,
    mlflow: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Also put the runs into MLflow, such as sqlite:///runs.db."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Redraw the table and the pictures of runs without training."""
    from autofl.report.runs import read_runs

    if len(runs) == 1 and _is_study(runs[0]):
        raise AutoFLError(
            f"{runs[0]}: results of a study; to show them: autofl reproduce --from {quoted(runs[0])}"
        )
    read = read_runs(runs)
    if mlflow is not None:
        from autofl.report.tracking import track

        say(f"{track(read, mlflow)} new runs in {mlflow}")
    report(read, out or runs[0], target, as_json, html, latex)


def _is_study(folder: Path) -> bool:
    """Whether a folder holds the results of a study: a table and what it is about, or both in one
    file. A sweep writes such a pair too.
    """
    tables = [path for path in folder.glob("*.csv") if path.stem != "sweep"]
    pairs = any(path.with_suffix(".json").is_file() for path in tables)
    return pairs or any(folder.glob("joint-*.json")) or (folder / "radio.json").is_file()
