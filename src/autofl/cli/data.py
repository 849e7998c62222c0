"""autofl data: what is here, fetch a data set, draw who owns what."""

from pathlib import Path
from typing import Annotated

import typer

from autofl.cli.screen import DownloadBar, say, show_table
from autofl.cli.shared import Config, Json, Set, print_json
from autofl.errors import setup_with
from autofl.report.table import Table

data_app = typer.Typer(
    help="Data sets: list them, fetch one, draw who owns what.", rich_markup_mode="rich"
)


@data_app.callback(
    invoke_without_command=True, epilog="Example: autofl data; autofl data fetch mnist"
)
def data_command(context: typer.Context, as_json: Json = False) -> None:
    """List the data sets and where they are; see `autofl data fetch --help` and `autofl data draw
    --help`.
    """
    if context.invoked_subcommand is not None:
        return
    from autofl.data import CATALOG, MNIST5K_TITLE, find

    titles = {"mnist5k": MNIST5K_TITLE, **{name: source.title for name, source in CATALOG.items()}}
    missing = {"mnist5k": setup_with("demo")}
    said = []
    rows = []
    for name, title in titles.items():
        place = find(name)
        where = None if place is None else str(place)
        said.append({"name": name, "title": title, "place": where})
        how = missing.get(name, f"autofl data fetch {name}")
        rows.append([name, title, where or f"not here: {how}"])
    if as_json:
        print_json(said)
    else:
        show_table(Table(["name", "data set", "where"], rows))


@data_app.command("fetch", epilog="Example: autofl data fetch mnist")
def fetch_command(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist or cifar10.")],
    folder: Annotated[
        Path | None, typer.Option(help="Target folder; default AUTOFL_DATA or the cache.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Download a data set from its canonical mirror, checked against its sha256."""
    from autofl.data import fetch, load

    with DownloadBar(name) as bar:
        place = fetch(name, folder, bar)
    number = len(load(name, folder).y)
    if as_json:
        return print_json({"name": name, "place": str(place), "samples": number})
    say(f"{name}: {number:,} samples in {place}")
    return None


@data_app.command("draw", epilog="Example: autofl data draw --set data.labels=3 --out partition")
def draw_command(
    config: Config = None,
    overrides: Set = None,
    out: Annotated[
        Path, typer.Option(help="Picture without extension; PNG and SVG are written.")
    ] = Path("partition"),
    as_json: Json = False,
) -> None:
    """Draw who owns how many samples of which label."""
    from autofl.config import load_settings
    from autofl.experiments.data import build_partition, load_data
    from autofl.report.partition import plot_partition

    settings = load_settings(config, overrides or ())
    dataset, owner = load_data(settings)
    partition = build_partition(settings, dataset, owner)
    title = f"{dataset.name}, partition {settings.data.partition}, seed {settings.seed}"
    out.parent.mkdir(parents=True, exist_ok=True)
    pictures = [
        str(path) for path in plot_partition(partition, dataset.y, dataset.num_classes, out, title)
    ]
    if as_json:
        sizes = {"train": partition.train_size.tolist(), "test": partition.test_size.tolist()}
        return print_json({"pictures": pictures, **sizes})
    say("\n".join(pictures))
    return None
