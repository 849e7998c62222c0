"""autofl report: tables and pictures of runs that are there."""

from pathlib import Path
from typing import Annotated

import typer

from autofl.cli.shared import Json, report, show_joint, show_reproduction
from autofl.errors import AutoFLError

EXAMPLE = "Example: autofl report runs/demo --target 0.8 --out report"


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, folders of them, or results of a reproduction.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for pictures and table; default the first one given.")
    ] = None,
    target: Annotated[float, typer.Option(help="Accuracy for time to accuracy.")] = 0.85,
    page: Annotated[Path | None, typer.Option(help="Page whose marked blocks a reproduction fills.")] = None,
    as_json: Json = False,
) -> None:
    """Redraw the table and the pictures of runs, or of a reproduction, without training."""
    from autofl.records import find_runs

    if len(runs) == 1 and _is_results(runs[0]):
        return show_reproduction(runs[0], out if out is not None else runs[0], page, None, as_json)
    if len(runs) == 1 and any(runs[0].glob("joint-*.json")):
        return show_joint(runs[0], out if out is not None else runs[0], page, None, as_json)
    if page is not None:
        raise AutoFLError(f"--page {page}: only the results of a reproduction fill a page; {runs[0]} holds none")
    report(find_runs(runs), out if out is not None else runs[0], target, as_json)
    return None


def _is_results(folder: Path) -> bool:
    """Whether a folder has results of a reproduction, told by their files without loading the drawing library."""
    return any(path.with_suffix(".json").is_file() for path in folder.glob("*.csv"))
