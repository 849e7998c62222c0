"""The program `autofl`: bad input ends in one clear line and exit status 2, never in a traceback.

Each command imports what it needs when it runs, so that `autofl plan` starts without PyTorch.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from autofl.cli.screen import DownloadBar, ProgressBar, Stages, say, show_table
from autofl.errors import AutoFLError
from autofl.version import __version__

if TYPE_CHECKING:
    from autofl.experiments.forecast import Forecast

app = typer.Typer(
    name="autofl",
    help="Federated learning for mobile edge networks: plan, simulate, compare.",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(help="Data sets: what is here, fetch one, draw who owns what.", rich_markup_mode="rich")
app.add_typer(data_app, name="data")

Config = Annotated[Path | None, typer.Argument(help="Settings in TOML; the paper's defaults without one.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. stop.rounds=50."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines, SI units.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; default the next free one under runs/.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda; default auto.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite runs that are there already.")]

INTERRUPTED = 130


@app.callback(invoke_without_command=True)
def autofl(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"autofl {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("plan", epilog="Example: autofl plan examples/cell.toml --planner exact --json; autofl plan --target 0.85")
def plan_command(
    config: Config = None,
    planner: Annotated[str | None, typer.Option(help="paper, exact or fixed; default the settings'.")] = None,
    target: Annotated[
        float | None, typer.Option(help="Forecast rounds, learning time and energy to this adapted accuracy.")
    ] = None,
    pilots: Annotated[
        Path | None, typer.Option(help="Pilots for the forecast, from autofl pilot; default those that come along.")
    ] = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Plan one round: who trains on how much, sends at what power, how long it takes, which constraint binds.

    With --target, also forecast the whole training.
    """
    from autofl.config import load_settings
    from autofl.experiments.cell import plan

    if planner not in (None, "paper", "exact", "fixed"):
        raise AutoFLError(f"--planner {planner}: unknown; there are paper, exact, fixed")
    settings = load_settings(config, [*(overrides or ()), *_options({"planner.name": planner})])
    made = plan(settings)
    table: dict[str, Any] = made.table()
    coming = None
    if target is not None:
        from autofl.experiments.forecast import forecast

        coming = forecast(settings, target, pilots)
        table = {**table, "forecast": coming.table()}
    elif pilots is not None:
        raise AutoFLError("--pilots serves a forecast; say to which accuracy with --target, for example 0.85")
    if as_json:
        return _print_json({"planner": settings.planner.name, **table})
    ues = table["ues"]
    show_table(
        [
            "UE",
            "distance [m]",
            "samples",
            "power [mW]",
            "SNR [dB]",
            "compute [ms]",
            "upload [ms]",
            "energy [mJ]",
            "status",
        ],
        [_plan_row(ue) for ue in ues],
        title=f"One round, planner {settings.planner.name}",
    )
    counts = ", ".join(
        f"{sum(ue['status'] == name for ue in ues)} {name}" for name in dict.fromkeys(ue["status"] for ue in ues)
    )
    say(
        f"round time {table['round_time']:.4f} s; {table['num_feasible']} of {len(ues)} UEs take part; status: {counts}"
    )
    if coming is not None:
        _say_forecast(coming, settings.algorithm)
    return None


def _say_forecast(coming: "Forecast", algorithm: str) -> None:
    """The forecast in words, where it comes from and how far it is to be trusted."""
    show_table(
        [f"{algorithm} to {100 * coming.target:g} % adapted", "median", "95 % of runs"],
        [
            [name, f"{factor * each[0]:.3g}", f"{factor * each[1]:.3g} to {factor * each[2]:.3g}"]
            for name, factor, each in (
                ("rounds", 1.0, coming.rounds),
                ("learning time [s]", 1.0, coming.sim_time),
                ("energy per UE [mJ]", 1e3, coming.energy),
            )
        ],
    )
    say(
        f"fitted from {coming.num_pilots} pilots ({coming.source}); single runs scatter by {100 * coming.scatter:.0f} %"
        " around the fit; valid for this data, partition, model, step sizes and number of UEs"
    )
    if coming.outside:
        say(f"careful: {', '.join(coming.outside)} lies outside the pilots, so this extrapolates")
    if coming.unheard:
        say(f"careful: {coming.unheard} UEs are hardly ever heard; the model will not be theirs")
    if coming.never:
        say(f"careful: {coming.never} of the drawn networks do not get there at all and are left out")


def _plan_row(ue: dict[str, Any]) -> list[str]:
    import math

    because = f" ({ue['infeasible_because']})" if ue["infeasible_because"] else ""
    return [
        str(ue["id"]),
        f"{ue['distance']:.1f}",
        str(ue["num_samples"]),
        f"{1e3 * ue['tx_power']:.3f}",
        f"{10 * math.log10(ue['snr']):.1f}" if ue["snr"] > 0 else "–",
        f"{1e3 * ue['compute_time']:.2f}",
        f"{1e3 * ue['upload_time']:.1f}",
        f"{1e3 * ue['energy']:.3f}",
        ue["status"] + because,
    ]


@app.command("simulate", epilog="Example: autofl simulate --algorithm autofl --set stop.rounds=50")
def simulate_command(
    config: Config = None,
    algorithm: Annotated[str | None, typer.Option(help="autofl, per-fedavg, fedavg-1 or fedavg-2.")] = None,
    device: Device = None,
    out: Out = None,
    force: Force = False,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Simulate one algorithm and write its run folder."""
    from autofl.config import load_settings
    from autofl.records import is_run

    chosen = _options({"algorithm": algorithm, "simulation.device": device})
    settings = load_settings(config, [*(overrides or ()), *chosen])
    folder = out if out is not None else _free_folder("simulate")
    if is_run(folder) and not force:
        raise AutoFLError(f"{folder}: a run is there already; name another folder (--out) or overwrite it (--force)")
    say(f"{settings.algorithm}, seed {settings.seed}, into {folder}")
    from autofl.experiments.run import run_with_progress

    with ProgressBar(settings.stop.rounds, settings.stop.rounds) as bar:
        try:
            run_with_progress(settings, folder, bar)
        except KeyboardInterrupt:
            _leave(folder)
    _report([folder], folder, settings.compare.target_accuracy, as_json)


@app.command("compare", epilog="Example: autofl compare --seeds 5 --set data.name=mnist --out runs/mnist")
def compare_command(
    config: Config = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    device: Device = None,
    out: Out = None,
    force: Force = False,
    workers: Annotated[int | None, typer.Option(help="Runs at a time; default the number of cores.")] = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Compare algorithms over the same network, fading and data, several seeds each: a table and pictures."""
    from autofl.config import load_settings

    chosen = _options({"compare.seeds": seeds, "simulation.device": device})
    settings = load_settings(config, [*(overrides or ()), *chosen])
    folder = out if out is not None else _free_folder("compare")
    names, number = settings.compare.algorithms, settings.compare.seeds
    say(f"{', '.join(names)}; {number} seed{'s' if number > 1 else ''} each; into {folder}")
    from autofl.experiments.run import compare

    if workers is None:
        workers = max(1, (os.cpu_count() or 1) // settings.simulation.threads)
    if workers < 1:
        raise AutoFLError(f"--workers {workers}: at least 1 is needed")
    with ProgressBar(len(names) * number * settings.stop.rounds, settings.stop.rounds) as bar:
        try:
            runs = compare(settings, folder, force=force, workers=workers, on_progress=bar)
        except KeyboardInterrupt:
            _leave(folder)
    _report([run.folder for run in runs], folder, settings.compare.target_accuracy, as_json)


@app.command("report", epilog="Example: autofl report runs/demo --target 0.8 --out report")
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of run folders.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for pictures and table; default the first one given.")
    ] = None,
    target: Annotated[float, typer.Option(help="Accuracy for time to accuracy.")] = 0.85,
    as_json: Json = False,
) -> None:
    """Redraw the table and the pictures of runs, without training."""
    from autofl.records import find_runs

    if not 0.0 < target <= 1.0:
        raise AutoFLError(f"--target {target}: must lie between 0 and 1, for example 0.85")
    _report(find_runs(runs), out if out is not None else runs[0], target, as_json)


@app.command(
    "pilot",
    epilog="Example: autofl pilot --labels 2,5,10 --out pilots.json",
)
def pilot_command(
    config: Config = None,
    labels: Annotated[str | None, typer.Option(help="Labels of a UE, such as 2,5,10; default the settings'.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each pilot.")] = 2,
    out: Annotated[Path, typer.Option(help="File for the pilots; their runs go beside it.")] = Path("pilots.json"),
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Run short trainings from which `autofl plan --target` forecasts learning time and energy."""
    from autofl.config import load_settings

    settings = load_settings(config, overrides or ())
    try:
        numbers = [int(each) for each in labels.split(",")] if labels is not None else [settings.data.labels]
    except ValueError:
        raise AutoFLError(f"--labels {labels}: write whole numbers with commas, for example 2,5,10") from None
    if seeds < 1 or min(numbers) < 1:
        raise AutoFLError(f"--seeds {seeds}, --labels {labels}: all must be at least 1")
    from autofl.experiments.pilot import run_pilots
    from autofl.records.pilots import write_pilots

    with Stages() as stages:
        pilots = run_pilots(settings, out.with_suffix("") / "runs", numbers, seeds, stages)
    words = ["autofl pilot", *([str(config)] if config else []), *(f"--set {each}" for each in overrides or ())]
    command = " ".join([*words, f"--labels {','.join(map(str, numbers))}", f"--seeds {seeds}"])
    write_pilots(out, pilots, command)
    if as_json:
        return _print_json({"file": str(out), "pilots": len(pilots)})
    say(f"{len(pilots)} pilots in {out}; use them with autofl plan --target 0.85 --pilots {out}")
    return None


@app.command("analyze", epilog="Example: autofl analyze --set data.name=mnist --set stop.rounds=100 --out runs/theory")
def analyze_command(
    config: Config = None,
    points: Annotated[int, typer.Option(help="Points of the run at which the constants are estimated.")] = 3,
    samples: Annotated[int, typer.Option(help="Samples of each UE whose own Hessians are taken.")] = 128,
    steps: Annotated[int, typer.Option(help="Lanczos steps for each largest eigenvalue.")] = 16,
    device: Device = None,
    out: Out = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """What the convergence theory promises for a run, whether its conditions are met, and what really happens."""
    from autofl.config import load_settings

    for name, value, least in (("points", points, 2), ("samples", samples, 4), ("steps", steps, 2)):
        if value < least:
            raise AutoFLError(f"--{name} {value}: at least {least} are needed")
    settings = load_settings(config, [*(overrides or ()), *_options({"simulation.device": device})])
    folder = out if out is not None else _free_folder("analyze")
    from autofl.experiments.analyze import analyze
    from autofl.report.theory import plot_theory, theory_table, theory_words

    with Stages() as stages:
        result = analyze(settings, num_points=points, num_samples=samples, num_steps=steps, on_stage=stages)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "theory.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    pictures = [str(path) for path in plot_theory(result, folder / "theory")]
    if as_json:
        return _print_json({**result, "pictures": pictures})
    show_table(*theory_table(result))
    say(theory_words(result))
    say(f"picture: {pictures[0]} (and .svg); all numbers: {folder / 'theory.json'}")
    return None


@app.command("settings", epilog="Example: autofl settings")
def settings_command(as_json: Json = False) -> None:
    """List every setting with its default and meaning."""
    from autofl.config.describe import describe

    rows = describe()
    if as_json:
        return _print_json([dict(zip(("key", "default", "meaning"), row, strict=True)) for row in rows])
    show_table(["setting", "default", "meaning"], [list(row) for row in rows])
    return None


@data_app.callback(invoke_without_command=True, epilog="Example: autofl data; autofl data fetch mnist")
def data_command(context: typer.Context, as_json: Json = False) -> None:
    """List the data sets and where they are; see `autofl data fetch --help` and `autofl data draw --help`."""
    if context.invoked_subcommand is not None:
        return
    from autofl.data import CATALOG, MNIST5K_TITLE, find

    titles = {"mnist5k": MNIST5K_TITLE, **{name: source.title for name, source in CATALOG.items()}}
    places = {name: find(name) for name in titles}
    if as_json:
        _print_json(
            [{"name": name, "title": titles[name], "place": place and str(place)} for name, place in places.items()]
        )
        return
    missing = {"mnist5k": "pip install 'autofl-edge[demo]'"}
    show_table(
        ["name", "data set", "where"],
        [
            [
                name,
                titles[name],
                str(place) if place else f"not here: {missing.get(name, f'autofl data fetch {name}')}",
            ]
            for name, place in places.items()
        ],
    )


@data_app.command("fetch", epilog="Example: autofl data fetch mnist")
def fetch_command(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist or cifar10.")],
    folder: Annotated[Path | None, typer.Option(help="Where to; default AUTOFL_DATA or the cache.")] = None,
    as_json: Json = False,
) -> None:
    """Download a data set from its canonical mirror, checked against its md5."""
    from autofl.data import fetch, load

    with DownloadBar(name) as bar:
        place = fetch(name, folder, bar)
    number = len(load(name, folder).y)
    if as_json:
        return _print_json({"name": name, "place": str(place), "samples": number})
    say(f"{name}: {number:,} samples in {place}")
    return None


@data_app.command("draw", epilog="Example: autofl data draw --set data.labels=3 --out partition")
def draw_command(
    config: Config = None,
    overrides: Set = None,
    out: Annotated[Path, typer.Option(help="Picture without its ending; PNG and SVG are written.")] = Path("partition"),
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
    pictures = [str(path) for path in plot_partition(partition, dataset.y, dataset.num_classes, out, title)]
    if as_json:
        sizes = {"train": partition.train_size.tolist(), "test": partition.test_size.tolist()}
        return _print_json({"pictures": pictures, **sizes})
    say("\n".join(pictures))
    return None


def _options(given: dict[str, object]) -> list[str]:
    """Options that stand for settings, as overrides."""
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def _report(folders: Sequence[Path], out: Path, target: float, as_json: bool) -> None:
    """Table on the screen and as Markdown, pictures, JSON: from run folders alone."""
    from autofl.records import read_run
    from autofl.report.plots import plot_runs
    from autofl.report.summary import as_json as json_of
    from autofl.report.summary import markdown, note, summarise, table

    runs = [read_run(folder) for folder in folders]
    rows = summarise(runs, target)
    say(f"drawing {len(runs)} run{'s' if len(runs) > 1 else ''} into {out}")
    pictures = plot_runs(runs, out, target)
    names = [path for path in pictures if path.suffix == ".png"]
    links = "".join(f"\n![{path.stem}]({path.name})\n" for path in names)
    (out / "report.md").write_text(f"{markdown(rows, target)}\n{note(rows)}\n{links}", encoding="utf-8")
    if as_json:
        return _print_json({**json_of(rows, target), "pictures": [str(path) for path in pictures]})
    show_table(*table(rows, target))
    say(note(rows))
    say(f"pictures: {', '.join(str(path) for path in names)} (and .svg); table: {out / 'report.md'}")
    return None


def _free_folder(kind: str) -> Path:
    """runs/KIND-N with the first N that is free."""
    number = 1
    while (folder := Path("runs") / f"{kind}-{number}").exists():
        number += 1
    return folder


def _leave(folder: Path) -> NoReturn:
    say(f"interrupted; the rounds so far are in {folder} (autofl report {folder})")
    raise typer.Exit(INTERRUPTED)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    try:
        status = app(args=None if argv is None else list(argv), prog_name="autofl", standalone_mode=False)
    except AutoFLError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
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
        raise
    return status if isinstance(status, int) else 0


def _fail(message: str) -> int:
    print(f"autofl: {' '.join(message.split())}", file=sys.stderr)
    return 2
