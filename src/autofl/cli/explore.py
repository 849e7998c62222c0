"""autofl explore: plan cells, watch runs and compare them on a page in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from autofl.cli.screen import say
from autofl.errors import AutoFLError

EXAMPLE = "Example: autofl explore; autofl explore runs/demo --port 8080"


def command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or folders that contain them; default runs."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")
    ] = 8117,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Open a page in the browser: plan a cell by dragging its UEs, watch runs learn, compare them."""
    from autofl.explore.serve import serve

    for folder in runs or ():
        if not folder.is_dir():
            raise AutoFLError(f"{folder}: no such folder")

    def ready(address: str) -> None:
        typer.echo(address)
        say(
            "the address contains a token that lets its holder start runs here; Ctrl-C ends the server"
        )
        if browser:
            import webbrowser

            webbrowser.open(address)

    serve(runs or [Path("runs")], port, ready)
