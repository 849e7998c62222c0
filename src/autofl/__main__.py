"""`python -m autofl` is `autofl`."""

from autofl.cli import main

main()
