"""autofl parts: what can be named in settings and on the command line."""

from typing import Annotated

import typer

from autofl.cli.screen import say, show_table
from autofl.cli.shared import Json, print_json
from autofl.errors import AutoFLError
from autofl.report.table import Table

EXAMPLE = "Example: autofl parts planner"


def command(
    kind: Annotated[
        str | None, typer.Argument(help="algorithm, planner, channel, ...; default all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List algorithms, planners, channels, compressors and so on, with the settings of each."""
    from autofl.config.describe import describe_parts
    from autofl.registry import PARTS

    if kind is not None and kind not in PARTS:
        raise AutoFLError(f"{kind}: no such kind of part; there are {', '.join(PARTS)}")
    rows = describe_parts([known for known in PARTS if kind in (None, known)])
    headings = ["kind", "name", "what", "settings"]
    if as_json:
        return print_json([dict(zip(headings, row, strict=True)) for row in rows])
    show_table(Table(headings, [list(row) for row in rows]))
    say("name your own as module:object, for example --planner my_plans:Greedy")
    return None
