"""autofl settings: every setting, its default and its meaning."""

from autofl.cli.screen import show_table
from autofl.cli.shared import Json, print_json
from autofl.report.table import Table

EXAMPLE = "Example: autofl settings"


def command(as_json: Json = False) -> None:
    """List every setting with its default and meaning."""
    from autofl.config.describe import describe

    rows = describe()
    if as_json:
        return print_json(
            [dict(zip(("key", "default", "meaning"), row, strict=True)) for row in rows]
        )
    show_table(Table(["setting", "default", "meaning"], rows))
    return None
