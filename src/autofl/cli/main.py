"""The program `autofl`: bad input ends in one clear line and exit status 2, never in a traceback.

Each command is a file of its own and imports what it needs when it runs, so that `autofl plan` starts without PyTorch.
"""

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, NoReturn

import typer

from autofl.cli import analyze, compare, parts, pilot, plan, report, reproduce, scenarios, settings, simulate, tune
from autofl.cli.data import data_app
from autofl.cli.deploy import deploy_app
from autofl.cli.screen import write_anywhere
from autofl.cli.shared import BAD_INPUT, INTERRUPTED, exit_status
from autofl.errors import AutoFLError, in_own_code, raise_when_told_to_end
from autofl.version import __version__

app = typer.Typer(
    name="autofl",
    help="Federated learning for mobile edge networks: plan, simulate, compare, deploy.",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)
COMMANDS = {
    "plan": plan,
    "simulate": simulate,
    "compare": compare,
    "tune": tune,
    "reproduce": reproduce,
    "report": report,
    "pilot": pilot,
    "analyze": analyze,
    "settings": settings,
    "parts": parts,
    "scenarios": scenarios,
}
for name, module in COMMANDS.items():
    app.command(name, epilog=module.EXAMPLE)(module.command)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")


@app.callback(invoke_without_command=True)
def autofl(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"autofl {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    raise_when_told_to_end()
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    write_anywhere()
    words = plan.name_picture(list(sys.argv[1:] if argv is None else argv))
    try:
        status = _program()(args=words, prog_name="autofl", standalone_mode=False)
    except AutoFLError as error:
        return _fail(str(error))
    except KeyboardInterrupt as error:
        return exit_status(error)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError:
        return _fail("not enough memory; use fewer UEs (cell.num_ue), fewer samples or a smaller model")
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the command-line library
            return _fail(f"{error.format_message()} (see --help)")
        if type(error).__name__ == "Abort":
            return INTERRUPTED
        if isinstance(error, RecursionError):
            return _fail("input nested too deep")
        if (own := in_own_code(error)) is not None:
            return _fail(str(own))
        raise
    return status if isinstance(status, int) else 0


@cache
def _program() -> Any:
    """The commands as the command-line library runs them: built once, since that takes longer than many a call."""
    return typer.main.get_command(app)


def _fail(message: str) -> int:
    print(f"autofl: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT
