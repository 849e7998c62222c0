"""autofl deploy: the same planner and client update on real devices, through Flower."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autofl.cli.screen import ProgressBar, say, show_table
from autofl.cli.shared import (
    Config,
    Force,
    Json,
    Out,
    Set,
    free_folder,
    leave,
    print_json,
    report_new_runs,
    say_foregone,
)
from autofl.errors import AutoFLError
from autofl.report.table import Table

if TYPE_CHECKING:
    from autofl.config import Settings
    from autofl.records import Run

deploy_app = typer.Typer(
    help="Run on real devices through Flower: a first try on this machine, and the commands for several.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Option(help="Folder of the deployment: certificates, keys, logs.")]
Nodes = Annotated[int | None, typer.Option(help="Number of devices; default 3, or the settings' cell.num_ue.")]
HERE = Path("runs/deployment")


def _need_flower() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise AutoFLError("deploy needs Flower; install it with: pip install 'autofl-edge[flower]'")


@deploy_app.command("up", epilog="Example: autofl deploy up --nodes 3 && autofl deploy run && autofl deploy down")
def up_command(config: Config = None, nodes: Nodes = None, folder: Folder = HERE, overrides: Set = None) -> None:
    """Start a SuperLink and SuperNodes on this machine, with TLS and node authentication."""
    _need_flower()
    from autofl.deploy.commands import up

    up(_settings(config, nodes, overrides), folder, say)
    say("next: autofl deploy run, then autofl deploy down")


@deploy_app.command("run", epilog="Example: autofl deploy run --set stop.rounds=3 --out runs/devices")
def run_command(
    folder: Folder = HERE,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    force: Force = False,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Run the settings of `deploy up` on the devices, into a run folder."""
    _need_flower()
    from autofl.config import load_settings
    from autofl.deploy.commands import progress_of, run, settings_of
    from autofl.records import is_run

    if resume is not None and (out is not None or overrides):
        raise AutoFLError("--resume goes on with the settings of its run; give neither --out nor --set")
    settings = settings_of(folder)
    if resume is not None:
        settings = load_settings(resume / "config.toml")
    elif overrides:
        settings = load_settings(folder / "config.toml", overrides)
    place = resume or out or free_folder("deploy")
    if resume is None and is_run(place) and not force:
        raise AutoFLError(f"{place}: a run is there already; name another folder (--out) or overwrite it (--force)")
    say(f"{settings.algorithm}, seed {settings.seed}, on devices, into {place}")
    say_foregone(settings)
    with ProgressBar(settings.stop.rounds) as bar:

        def on_round(run: "Run") -> None:
            bar(progress_of(run))

        try:
            run(settings, folder, place, on_round, resume is not None)
        except KeyboardInterrupt as error:
            leave(place, f"autofl deploy run --resume {place}", error)
    report_new_runs([place], place, settings.compare.target_accuracy, as_json)


@deploy_app.command("status", epilog="Example: autofl deploy status --json")
def status_command(folder: Folder = HERE, as_json: Json = False) -> None:
    """What runs: the processes, the SuperNodes the SuperLink sees, the runs."""
    _need_flower()
    from autofl.deploy.commands import status

    state = status(folder)
    if as_json:
        return print_json(state)
    if not state["processes"]:
        say(f"{folder}: nothing is up")
        return None
    rows = [[name, "runs" if on else "gone"] for name, on in state["processes"].items()]
    show_table(Table(["process", "state"], rows))
    say(state.get("problem") or f"{state.get('online', 0)} SuperNodes online; {len(state.get('runs', []))} runs so far")
    return None


@deploy_app.command("down", epilog="Example: autofl deploy down")
def down_command(folder: Folder = HERE) -> None:
    """End everything that `deploy up` started."""
    _need_flower()
    from autofl.deploy.commands import down

    ended = down(folder)
    say(f"ended {', '.join(ended)}" if ended else f"{folder}: nothing was up")


@deploy_app.command("prepare", epilog="Example: autofl deploy prepare --host server.example.org --nodes 5")
def prepare_command(
    host: Annotated[str, typer.Option(help="Name or address by which devices reach the server.")],
    config: Config = None,
    nodes: Nodes = None,
    port: Annotated[int, typer.Option(help="Port of the SuperLink.")] = 8000,
    folder: Folder = HERE,
    overrides: Set = None,
) -> None:
    """Make certificates and keys for several machines, and print the commands for each."""
    _need_flower()
    from autofl.deploy.commands import commands

    typer.echo(commands(_settings(config, nodes, overrides), folder, host, port))


def _settings(config: Path | None, nodes: int | None, overrides: list[str] | None) -> "Settings":
    """Without any word about their number there are three devices."""
    from autofl.config import load_settings

    settings = load_settings(config, overrides or ())
    if nodes is None and (config is not None or settings.cell.num_ue is not None):
        return settings
    return load_settings(config, [*(overrides or ()), f"cell.num_ue={3 if nodes is None else nodes}"])
