"""autofl deploy: the same algorithm and planner on real devices, through Flower."""


import typer

deploy_app = typer.Typer(
    help="Run on real devices through Flower: a first try on this machine, and the commands for several.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)
