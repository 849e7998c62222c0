"""autofl testbed: a deployment on this machine whose links and processors take what the model says."""

from pathlib import Path
from typing import Annotated

import typer

from autofl.cli.deploy import Folder, Nodes, Resume, need_flower, run_on_devices, settings_for
from autofl.cli.screen import say
from autofl.cli.shared import Config, Force, Json, Out, Set
from autofl.errors import AutoFLError
from autofl.files import quoted

testbed_app = typer.Typer(
    help="Run devices on this machine, each in its own network and as slow as modelled (Linux, root or CAP_NET_ADMIN).",
    rich_markup_mode="rich",
    no_args_is_help=True,
)
Slow = Annotated[
    float, typer.Option(help="How many times slower than modelled all links and processors are.")
]
HERE = Path("runs/testbed")


@testbed_app.command("up", epilog="Example: autofl testbed up --nodes 5 --slow 10")
def up_command(
    config: Config = None,
    nodes: Nodes = None,
    slow: Slow = 1.0,
    folder: Folder = HERE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands that make the networks; run none.")
    ] = False,
    overrides: Set = None,
) -> None:
    """Make a network for each device, then start a SuperLink and SuperNodes in them."""
    need_flower()
    from autofl.deploy.commands import up
    from autofl.deploy.testbed import Testbed

    settings = settings_for(config, nodes, overrides)
    testbed = Testbed(folder, settings.resolved().cell.count, slow)
    if dry_run:
        for ue in range(testbed.num_ue):
            typer.echo("\n".join(" ".join(command) for command in testbed.building(ue)))
        return
    testbed.build()
    say(
        f"{testbed.num_ue} networks {testbed.prefix}-0 ...; links and processors {slow:g} times slower than modelled"
    )
    up(settings, folder, say, testbed)
    say(
        f"next: autofl testbed run --folder {quoted(folder)}, then autofl testbed down --folder {quoted(folder)}"
    )


@testbed_app.command("run", epilog="Example: autofl testbed run --set stop.rounds=20")
def run_here_command(
    folder: Folder = HERE,
    out: Out = None,
    resume: Resume = None,
    force: Force = False,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Run on the testbed, into a run folder."""
    if not (folder / "config.toml").is_file():
        raise AutoFLError(
            f"{folder}: no testbed there; start one with: autofl testbed up --folder {quoted(folder)}"
        )
    run_on_devices("autofl testbed run", HERE, folder, out, resume, force, overrides, as_json)


@testbed_app.command("down", epilog="Example: autofl testbed down")
def down_command(folder: Folder = HERE) -> None:
    """End the processes and remove the networks, even if the commands that made them are gone."""
    need_flower()
    from autofl.deploy.commands import down
    from autofl.deploy.testbed import Testbed

    ended = down(folder)
    spaces = Testbed(folder, 1).remove()
    say(f"ended {', '.join(ended) or 'nothing'}; removed {len(spaces)} networks")
