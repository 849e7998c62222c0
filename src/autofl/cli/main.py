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

from autofl.cli.deploy import deploy_app
from autofl.cli.screen import DownloadBar, ProgressBar, Stages, say, show_table
from autofl.cli.shared import (
    INTERRUPTED,
    Config,
    Device,
    Force,
    Json,
    Out,
    Ray,
    Set,
    Workers,
    device_for,
    free_folder,
    leave,
    options,
    print_json,
    report,
)
from autofl.errors import AutoFLError
from autofl.version import __version__

if TYPE_CHECKING:
    from autofl.analysis.forecast import Forecast

app = typer.Typer(
    name="autofl",
    help="Federated learning for mobile edge networks: plan, simulate, compare, deploy.",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(help="Data sets: what is here, fetch one, draw who owns what.", rich_markup_mode="rich")
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
    settings = load_settings(config, [*(overrides or ()), *options({"planner.name": planner})])
    made = plan(settings)
    table: dict[str, Any] = made.table()
    coming = None
    if target is not None:
        from autofl.analysis.forecast import forecast

        coming = forecast(settings, target, pilots)
        table = {**table, "forecast": coming.table()}
    elif pilots is not None:
        raise AutoFLError("--pilots serves a forecast; say to which accuracy with --target, for example 0.85")
    if as_json:
        return print_json({"planner": settings.planner.name, **table})
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
    ray: Ray = None,
    out: Out = None,
    force: Force = False,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Simulate one algorithm and write its run folder."""
    from autofl.config import load_settings
    from autofl.records import is_run

    chosen = options({"algorithm": algorithm, "simulation.device": device_for(device, ray)})
    settings = load_settings(config, [*(overrides or ()), *chosen])
    folder = out if out is not None else free_folder("simulate")
    if is_run(folder) and not force:
        raise AutoFLError(f"{folder}: a run is there already; name another folder (--out) or overwrite it (--force)")
    say(f"{settings.algorithm}, seed {settings.seed}, into {folder}")
    from autofl.experiments.jobs import Job, run_with_progress

    with ProgressBar(settings.stop.rounds) as bar:
        try:
            run_with_progress(Job(settings, folder, f"{settings.algorithm} seed {settings.seed}"), bar, ray=ray)
        except KeyboardInterrupt:
            leave(folder)
    report([folder], folder, settings.compare.target_accuracy, as_json)


@app.command("compare", epilog="Example: autofl compare --seeds 5 --set data.name=mnist --out runs/mnist")
def compare_command(
    config: Config = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    device: Device = None,
    ray: Ray = None,
    out: Out = None,
    force: Force = False,
    workers: Workers = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Compare algorithms over the same network, fading and data, several seeds each: a table and pictures."""
    from autofl.config import load_settings

    chosen = options({"compare.seeds": seeds, "simulation.device": device_for(device, ray)})
    settings = load_settings(config, [*(overrides or ()), *chosen])
    folder = out if out is not None else free_folder("compare")
    names, number = settings.compare.algorithms, settings.compare.seeds
    say(f"{', '.join(names)}; {number} seed{'s' if number > 1 else ''} each; into {folder}")
    from autofl.experiments.jobs import compare

    count = _workers(workers, settings.simulation.threads)
    with ProgressBar(len(names) * number * settings.stop.rounds) as bar:
        try:
            runs = compare(settings, folder, force=force, workers=count, ray=ray, on_progress=bar)
        except KeyboardInterrupt:
            leave(folder)
    report([run.folder for run in runs], folder, settings.compare.target_accuracy, as_json)


@app.command("reproduce", epilog="Example: autofl reproduce fig2b fig4e; autofl reproduce all --scale full")
def reproduce_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="fig2a to fig5d, sensitivity, or all.")],
    scale: Annotated[str, typer.Option(help="quick: minutes on two cores; full: as in the paper.")] = "quick",
    seeds: Annotated[int | None, typer.Option(help="How many seeds; default the scale's.")] = None,
    device: Device = None,
    ray: Ray = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default runs/reproduce-SCALE.")] = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Make figures of the paper, with what it says beside what was measured. Goes on where it was interrupted."""
    from autofl.reproduction.recipes import SCALES, studies_of, with_seeds

    if scale not in SCALES:
        raise AutoFLError(f"--scale {scale}: unknown; there are {', '.join(SCALES)}")
    where = device_for(device, ray) or "auto"
    studies, count = studies_of(names), _workers(workers)
    chosen, folder = with_seeds(SCALES[scale], seeds), out if out is not None else Path("runs") / f"reproduce-{scale}"
    from autofl.reproduction.results import collect, write_study
    from autofl.reproduction.store import entries_of, missing_data, run_entries, unfinished

    for study, data in missing_data(studies).items():
        if "all" not in names or scale == "full":
            raise AutoFLError(f"{study} needs {data}: run 'autofl data fetch {data}', or name its folder (AUTOFL_DATA)")
        say(f"{study} is left out: {data} is not here (autofl data fetch {data})")
        studies.remove(study)
    entries = {study: entries_of(study, chosen, folder / "runs", where) for study in studies}
    needed = [entry for members in entries.values() for entry in members]
    left = unfinished(needed)
    say(f"{len({entry.place for entry in needed})} runs, {len(left)} of them to be made, into {folder}")
    with ProgressBar(max(1, sum(entry.settings.stop.rounds for entry in left)), each_run=False) as bar:
        try:
            run_entries(left, count, ray, bar)
        except KeyboardInterrupt:
            say(f"interrupted; the same command goes on from here (finished runs are in {folder / 'runs'})")
            raise typer.Exit(INTERRUPTED) from None
    for study, members in entries.items():
        found = collect(study, scale, [(entry.arm, entry.seed, entry.place) for entry in members])
        write_study(found, folder / "results")
    wanted = None if "all" in names else names
    _report_reproduction(folder / "results", folder / "results", None, wanted, as_json)


@app.command("report", epilog="Example: autofl report runs/demo --target 0.8 --out report")
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, folders of them, or results of a reproduction.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for pictures and table; default the first one given.")
    ] = None,
    target: Annotated[float, typer.Option(help="Accuracy for time to accuracy.")] = 0.85,
    page: Annotated[Path | None, typer.Option(help="Page whose marked blocks a reproduction fills.")] = None,
    as_json: Json = False,
) -> None:
    """Redraw the table and the pictures of runs, or of a reproduction, without training."""
    from autofl.records import find_runs

    if len(runs) == 1 and _is_results(runs[0]):
        return _report_reproduction(runs[0], out if out is not None else runs[0], page, None, as_json)
    if page is not None:
        raise AutoFLError(f"--page {page}: only the results of a reproduction fill a page; {runs[0]} holds none")
    if not 0.0 < target <= 1.0:
        raise AutoFLError(f"--target {target}: must lie between 0 and 1, for example 0.85")
    return report(find_runs(runs), out if out is not None else runs[0], target, as_json)


@app.command(
    "pilot",
    epilog="Example: autofl pilot --labels 2,5,10 --out pilots.json",
)
def pilot_command(
    config: Config = None,
    labels: Annotated[str | None, typer.Option(help="Labels of a UE, such as 2,5,10; default the settings'.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each pilot.")] = 2,
    out: Annotated[Path, typer.Option(help="File for the pilots; their runs go beside it.")] = Path("pilots.json"),
    workers: Workers = None,
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
    count, folder = _workers(workers, settings.simulation.threads), out.with_suffix("") / "runs"
    from autofl.analysis.pilot import DESIGN, run_pilots
    from autofl.analysis.pilot_files import write_pilots

    with ProgressBar(len(DESIGN) * len(numbers) * seeds * settings.stop.rounds, each_run=False) as bar:
        try:
            pilots = run_pilots(settings, folder, numbers, seeds, count, bar)
        except KeyboardInterrupt:
            leave(folder)
    words = ["autofl pilot", *([str(config)] if config else []), *(f"--set {each}" for each in overrides or ())]
    command = " ".join([*words, f"--labels {','.join(map(str, numbers))}", f"--seeds {seeds}"])
    write_pilots(out, pilots, command)
    if as_json:
        return print_json({"file": str(out), "pilots": len(pilots)})
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
    settings = load_settings(config, [*(overrides or ()), *options({"simulation.device": device})])
    folder = out if out is not None else free_folder("analyze")
    from autofl.analysis.analyze import analyze
    from autofl.report.theory import plot_theory, theory_table, theory_words

    with Stages() as stages:
        result = analyze(settings, num_points=points, num_samples=samples, num_steps=steps, on_stage=stages)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "theory.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    pictures = [str(path) for path in plot_theory(result, folder / "theory")]
    if as_json:
        return print_json({**result, "pictures": pictures})
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
        return print_json([dict(zip(("key", "default", "meaning"), row, strict=True)) for row in rows])
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
        print_json(
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
        return print_json({"name": name, "place": str(place), "samples": number})
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
        return print_json({"pictures": pictures, **sizes})
    say("\n".join(pictures))
    return None


def _workers(given: int | None, threads: int = 1) -> int:
    """How many runs at a time: as told, or as many as the cores carry."""
    if given is not None and given < 1:
        raise AutoFLError(f"--workers {given}: at least 1 is needed")
    return given if given is not None else max(1, (os.cpu_count() or 1) // threads)


def _is_results(folder: Path) -> bool:
    """Whether a folder has results of a reproduction, told by their files without loading the drawing library."""
    return any(path.with_suffix(".json").is_file() for path in folder.glob("*.csv"))


def _report_reproduction(results: Path, out: Path, page: Path | None, names: list[str] | None, as_json: bool) -> None:
    """Pictures, tables and verdicts of a reproduction; on the screen those of the named figures, or all."""
    from autofl.reproduction.page import judge_all
    from autofl.reproduction.page import report as report_all
    from autofl.reproduction.results import read_results

    say(f"drawing into {out}")
    lines = report_all(results, out, page, names)
    judged = [each for each in judge_all(read_results(results)) if each.found is not None]
    if as_json:
        return print_json(
            {
                "figures": [
                    {"name": x.figure, "picture": str(x.picture), "paper": x.says, "measured": x.measured}
                    for x in lines
                ],
                "claims": [
                    {"name": x.claim.name, "claim": x.claim.words, "measured": x.measured, "verdict": x.verdict}
                    for x in judged
                ],
            }
        )
    show_table(["claim", "median [interval]", "verdict"], [[x.claim.words, x.measured, x.verdict] for x in judged])
    show_table(
        ["figure", "the paper says", "measured", "picture"],
        [[x.figure, x.says, x.measured, str(x.picture)] for x in lines],
    )
    say(f"tables and claims: {out / 'report.md'}; pictures also as .svg")
    return None


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
