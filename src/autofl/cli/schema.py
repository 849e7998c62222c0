"""autofl schema: the settings as a JSON schema, for editors."""

from autofl.cli.shared import print_json

EXAMPLE = "Example: autofl schema > settings.schema.json; a TOML file then begins with '#:schema ./settings.schema.json'"


def command() -> None:
    """Print the JSON schema of settings files, with which editors complete and check them."""
    from autofl.config.schema import schema

    print_json(schema())
