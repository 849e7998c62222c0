"""The command line. `main` is the program `autofl`."""

from autofl.cli.main import main

__all__ = ["main"]
