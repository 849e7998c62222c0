"""The program `autofl`: bad input ends in one clear line and exit status 2, never in a traceback.

Each command is a file of its own and imports what it needs when it runs, so that `autofl plan`
starts without PyTorch.
"""

import logging
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from autofl.cli import (
    compare,
    explore,
    listing,
    pilot,
    plan,
    report,
    schema,
    simulate,
    sweep,
    tune,
)
from autofl.cli.data import data_app
from autofl.cli.deploy import deploy_app
from autofl.cli.screen import listening, write_anywhere
from autofl.cli.shared import BAD_INPUT, INTERRUPTED, exit_status
from autofl.cli.testbed import testbed_app
from autofl.errors import TOLD, AutoFLError, in_own_code, raise_when_told_to_end
from autofl.report.table import printable
from autofl.version import __version__

log = logging.getLogger("autofl.said")


class _Told(Exception):
    """A command was told to end when it had nothing to close."""

    def __init__(self, signal: KeyboardInterrupt) -> None:
        self.signal = signal


class _Program(typer.core.TyperGroup):
    """The commands of this package, and those that other packages add to it.

    A further command is an entry point of the group `autofl.commands`: a module with a function
    `command` and an `EXAMPLE`, as those beside this file. They are looked for only where a name is
    none of ours or all are listed, so that our own commands start without them.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        self._add_further()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in LISTED:
            raise AutoFLError(f"autofl {cmd_name} is called autofl list {cmd_name} now")
        if cmd_name not in self.commands:
            self._add_further()
        return super().get_command(ctx, cmd_name)

    def _add_further(self) -> None:
        from importlib.metadata import entry_points

        for entry in entry_points(group="autofl.commands"):
            if entry.name not in self.commands:
                alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
                module = entry.load()
                alone.command(entry.name, epilog=module.EXAMPLE)(module.command)
                self.commands[entry.name] = typer.main.get_command(alone)

    def invoke(self, ctx: Any) -> Any:
        """Typer turns every KeyboardInterrupt into status 130; which signal it was is lost."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Told(error) from None


app = typer.Typer(
    name="autofl",
    cls=_Program,
    help="Federated learning for mobile edge networks: plan, simulate, compare, deploy.",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode="rich",
)
COMMANDS = {
    "plan": plan,
    "simulate": simulate,
    "compare": compare,
    "sweep": sweep,
    "tune": tune,
    "report": report,
    "explore": explore,
    "pilot": pilot,
    "list": listing,
    "schema": schema,
}
LISTED = ("parts", "scenarios", "settings")
"""Once commands of their own."""
for name, module in COMMANDS.items():
    app.command(name, epilog=module.EXAMPLE)(module.command)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")
app.add_typer(testbed_app, name="testbed")


@app.callback(invoke_without_command=True)
def autofl(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only results and errors.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print more: every round of every run.")
    ] = False,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log-file", metavar="FILE", help="Append all messages to a file, with times."
        ),
    ] = None,
) -> None:
    """These options may come before or after the command."""
    if quiet and verbose:
        raise AutoFLError("--quiet and --verbose: give one of them")
    context.with_resource(listening(quiet, verbose, log_file))
    log.info("autofl %s: %s", __version__, " ".join(sys.argv[1:]))
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
    try:
        words = common_first(plan.name_picture(list(sys.argv[1:] if argv is None else argv)))
        status = _program()(args=words, prog_name="autofl", standalone_mode=False)
    except AutoFLError as error:
        return _fail(str(error))
    except _Told as told:
        print("interrupted", file=sys.stderr)
        return exit_status(told.signal)
    except KeyboardInterrupt as error:
        return exit_status(error)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError:
        return _fail(
            "not enough memory; use fewer UEs (cell.num_ue), fewer samples or a smaller model"
        )
    except Exception as error:
        if TOLD:
            print("interrupted", file=sys.stderr)
            return 128 + TOLD[-1]
        if hasattr(error, "format_message"):  # a usage error of the command-line library
            return _fail(f"{error.format_message()} (see --help)")
        if type(error).__name__ == "Abort":
            return INTERRUPTED
        if isinstance(error, RecursionError):
            return _fail("the input is nested too deeply")
        if (own := in_own_code(error)) is not None:
            return _fail(str(own))
        raise
    return status if isinstance(status, int) else 0


@cache
def _program() -> Any:
    """The commands as the command-line library runs them; built once, since building takes longer
    than most calls.
    """
    return typer.main.get_command(app)


def common_first(words: list[str]) -> list[str]:
    """The words of a command line, with the options that all commands share moved before the
    command.
    """
    common = []
    rest = []
    remaining = iter(words)
    for word in remaining:
        if word in ("--quiet", "-q", "--verbose", "-v") or word.startswith("--log-file="):
            common.append(word)
        elif word == "--log-file":
            if not (file := next(remaining, "")) or file.startswith("-"):
                raise AutoFLError("--log-file: name the file, for example --log-file run.log")
            common += [word, file]
        else:
            rest.append(word)
    return common + rest


def _fail(message: str) -> int:
    print(printable(f"autofl: {' '.join(message.split())}"), file=sys.stderr)
    return BAD_INPUT
