"""autofl deploy: the same planner and client update on real devices, through Flower."""

import contextlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofl.cli.screen import ProgressBar, say, show_table
from autofl.cli.shared import (
    Config,
    Force,
    Json,
    Out,
    Set,
    folder_for,
    interruptible,
    print_json,
    report_new_runs,
    resuming,
    say_foregone,
    settings_in,
)
from autofl.errors import AutoFLError, lacks
from autofl.files import quoted
from autofl.report.table import Table

if TYPE_CHECKING:
    from autofl.config import Settings
    from autofl.records import Run

deploy_app = typer.Typer(
    help="Run on devices through Flower, all on this machine or on several.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Option(help="Folder of the deployment: certificates, keys, logs.")]
Nodes = Annotated[
    int | None, typer.Option(help="Number of devices; default 3, or cell.num_ue of the settings.")
]
Resume = Annotated[Path | None, typer.Option(help="Resume the run in this folder.")]
HERE = Path("runs/deployment")


def need_flower() -> None:
    """Make sure that Flower is installed, and keep what these commands write private to their user."""
    if importlib.util.find_spec("flwr") is None:
        raise lacks("deploy", "flower")
    from autofl.deploy.folder import PRIVATE

    os.umask(PRIVATE)


@deploy_app.command(
    "up", epilog="Example: autofl deploy up --nodes 3 && autofl deploy run && autofl deploy down"
)
def up_command(
    config: Config = None, nodes: Nodes = None, folder: Folder = HERE, overrides: Set = None
) -> None:
    """Start a SuperLink and SuperNodes on this machine, with TLS and node authentication."""
    need_flower()
    from autofl.config.load import own_code_named
    from autofl.deploy.commands import up

    settings = settings_for(config, nodes, overrides)
    up(settings, folder, say)
    named = _named(folder, HERE)
    own = "".join(f" {words}" for words in own_code_named(settings.table()))
    say(f"next: autofl deploy run{named}{own}, then autofl deploy down{named}")


@deploy_app.command(
    "run", epilog="Example: autofl deploy run --set stop.rounds=3 --out runs/devices"
)
def run_command(
    folder: Folder = HERE,
    out: Out = None,
    resume: Resume = None,
    force: Force = False,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Run the settings of `deploy up` on the devices, into a run folder."""
    run_on_devices("autofl deploy run", HERE, folder, out, resume, force, overrides, as_json)


def run_on_devices(
    command: str,
    usual: Path,
    folder: Path,
    out: Path | None,
    resume: Path | None,
    force: bool,
    overrides: list[str] | None,
    as_json: bool,
) -> None:
    """What `deploy run` and `testbed run` do; `command` is which, and `usual` the folder that it
    takes by default.
    """
    need_flower()
    from autofl.config import load_settings
    from autofl.deploy.commands import settings_of

    if resume is not None and out is not None:
        raise AutoFLError("--resume uses the settings of its run; give no --out")
    settings = settings_of(folder, overrides or ())
    if resume is not None:
        settings = settings_in(resume, overrides or ())
    elif overrides:
        settings = load_settings(folder / "config.toml", overrides)
    place = folder_for(resume or out, "deploy")
    try:
        _run_into(place, command, usual, folder, settings, resume is not None, force)
    except (AutoFLError, typer.Exit):
        if resume is None and out is None:
            drop_unused(place)
        raise
    report_new_runs([place], place, settings.compare.target_accuracy, as_json)


def drop_unused(folder: Path) -> None:
    """Remove a folder that was made for a run which was refused: nothing but its lock is in it."""
    from autofl.deploy.lease import FILE

    with contextlib.suppress(OSError):
        if {path.name for path in folder.iterdir()} <= {FILE}:
            (folder / FILE).unlink(missing_ok=True)
            folder.rmdir()


def _run_into(
    place: Path,
    command: str,
    usual: Path,
    folder: Path,
    settings: "Settings",
    resume: bool,
    force: bool,
) -> None:
    """Run into this folder, telling of each round."""
    from autofl.deploy.commands import progress_of, run
    from autofl.records import check_no_run

    # Now, before anything starts, and again once nobody else can write there.
    keep = not resume and not force
    if keep:
        check_no_run(place)
    say(f"{settings.arm_name}, seed {settings.seed}, on devices, into {place}")
    say_foregone(settings)
    told: list[str] = []
    with ProgressBar(settings.stop.rounds, each_round=True) as bar:

        def on_round(run: "Run") -> None:
            for line in run.manifest.get("notes", [])[len(told) :]:
                told.append(line)
                say(line)
            bar(progress_of(run))

        again = resuming(f"{command}{_named(folder, usual)}", place, settings)
        with interruptible(place, again):
            run(settings, folder, place, on_round, resume, keep)


@deploy_app.command("status", epilog="Example: autofl deploy status --json")
def status_command(folder: Folder = HERE, as_json: Json = False) -> None:
    """Show processes, SuperNodes and runs; for the newest run its progress, and who is left out and
    why.
    """
    need_flower()
    from autofl.deploy.status import status

    state = status(folder)
    if as_json:
        print_json(state)
        return
    _show_processes(folder, state)
    if (newest := state.get("newest")) is not None:
        _show_run(newest)


def _show_processes(folder: Path, state: dict[str, Any]) -> None:
    """What runs on this machine and who is online."""
    processes = state["processes"]
    if processes:
        rows = [[name, "runs" if on else "gone"] for name, on in processes.items()]
        show_table(Table(["process", "state"], rows))
    if "problem" in state:
        say(state["problem"])
    elif processes or state["up"]:
        free = "a run is under way; others must wait" if state["busy"] else "free for a run"
        num_runs = len(state.get("runs", []))
        say(f"{state.get('online', 0)} SuperNodes online; {num_runs} runs so far; {free}")
    else:
        say(f"{folder}: nothing is up")


def _show_run(newest: dict[str, Any]) -> None:
    """How far the newest run is, and what came of asking each device."""
    ended = "diverged" if newest.get("stop") == "diverged" else newest.get("status")
    say(f"{newest['folder']}: {newest.get('problem') or ended}")
    if "resume" in newest:
        say(f"continue it with {newest['resume']}", whole=True)
    if "devices" not in newest:
        return
    say(f"round {newest['rounds']} of {newest['of']}")
    rows = []
    for ue, one in newest["devices"].items():
        name = f"UE {ue}" if ue >= 0 else "no UE"
        rows.append([name, str(one["used"]), str(one["left_out"]), one["last"]])
    show_table(Table(["device", "updates used", "left out", "last"], rows))
    for line in newest["notes"]:
        say(line)
    if newest["asked"]:
        rows = [
            [f"UE {ue}", one["transport"], _milli(one.get("overhead"))]
            for ue, one in newest["asked"].items()
        ]
        show_table(Table(["device", "asked over", "overhead [ms]"], rows))
    if newest["overhead"] is not None:
        say(f"a round took {_milli(newest['overhead'])} ms beyond computing and sending")


def _milli(seconds: float | None) -> str:
    return "not measured" if seconds is None else f"{1e3 * seconds:.1f}"


def _named(folder: Path, usual: Path) -> str:
    """The option that names a folder, where it is not the one taken by default."""
    return "" if folder == usual else f" --folder {quoted(folder)}"


@deploy_app.command("down", epilog="Example: autofl deploy down")
def down_command(folder: Folder = HERE) -> None:
    """End everything that `deploy up` started."""
    need_flower()
    from autofl.deploy.commands import down

    ended = down(folder)
    say(f"ended {', '.join(ended)}" if ended else f"{folder}: nothing was up")


@deploy_app.command(
    "prepare", epilog="Example: autofl deploy prepare --host server.example.org --nodes 5"
)
def prepare_command(
    host: Annotated[str, typer.Option(help="Name or address by which devices reach the server.")],
    config: Config = None,
    nodes: Nodes = None,
    port: Annotated[int, typer.Option(help="Port of the SuperLink.")] = 8000,
    folder: Folder = HERE,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the settings that are there.")
    ] = False,
    overrides: Set = None,
) -> None:
    """Make certificates and keys for several machines, and print the commands for each."""
    need_flower()
    from autofl.deploy.several import prepare

    typer.echo(prepare(settings_for(config, nodes, overrides), folder, host, port, force))


def settings_for(config: Path | None, nodes: int | None, overrides: list[str] | None) -> "Settings":
    """Three devices unless the options or settings give a number."""
    from autofl.config import load_settings

    settings = load_settings(config, overrides or ())
    if nodes is None and (config is not None or settings.cell.num_ue is not None):
        return settings
    return load_settings(
        config, [*(overrides or ()), f"cell.num_ue={3 if nodes is None else nodes}"]
    )
