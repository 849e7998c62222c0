"""The whole benchmark in one run: our engines against their limit, and AutoFL against the frameworks of the field.

    make bench            everything; makes an environment for each peer first (minutes, once)
    python benchmarks/bench.py --no-peers --most 100      our engines alone, quickly
    python benchmarks/bench.py --redraw                   docs/performance.md and its picture from the results

Writes docs/results/performance.json, docs/performance.md and docs/images/performance.png.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HERE = ROOT / "benchmarks"
SCRATCH = ROOT / ".bench"
RESULTS = ROOT / "docs" / "results" / "performance.json"
PEERS = ("autofl", "fedjax", "pfl", "fluke", "flower")
NAMES = {"autofl": "AutoFL", "fedjax": "FedJAX", "pfl": "pfl-research", "fluke": "fluke", "flower": "Flower simulation"}
# (UEs, selected): rounds and repeats; Flower takes seconds a round and gets fewer.
WORK = {(20, 20): (30, 3), (1000, 100): (8, 3), (10_000, 1000): (3, 2)}
FLOWER_ROUNDS = 5


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_json(command: list[str], timeout: int = 1800) -> dict | None:
    """The JSON object on the last line of a command's output, or None where it failed."""
    quiet = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=quiet, cwd=ROOT)
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        say(f"  failed: {' '.join(command[1:3])} ({type(error).__name__})")
        return None


def peer_python(peer: str, folder: Path) -> str | None:
    """The interpreter of a peer's environment, which is made where it is missing."""
    if peer == "autofl":
        return sys.executable
    python = folder / peer / "bin" / "python"
    if not python.is_file():
        say(f"making the environment of {peer}")
        done = subprocess.run(
            ["sh", str(HERE / "peers" / "setup.sh"), str(folder), peer], capture_output=True, text=True
        )
        if done.returncode:
            say(f"  {peer} does not install here: {done.stderr.strip().splitlines()[-1:]}")
            return None
    return str(python)


def whole_field(folder: Path, data: str) -> list[dict]:
    """All workloads with all cores, the smallest with one thread too."""
    cores = os.cpu_count() or 1
    return field(folder, cores, data, list(WORK)) + (field(folder, 1, data, [(20, 20)]) if cores > 1 else [])


def field(folder: Path, threads: int, data: str, works: list[tuple[int, int]]) -> list[dict]:
    """Each framework on the same work, one after another in every repeat."""
    pythons = {peer: peer_python(peer, folder) for peer in PEERS}
    rows: list[dict] = []
    for num_ue, selected in works:
        rounds, repeats = WORK[num_ue, selected]
        work = SCRATCH / f"work-{num_ue}-{selected}.npz"
        make = [
            sys.executable,
            str(HERE / "peers" / "make_work.py"),
            "--num-ue",
            str(num_ue),
            "--selected",
            str(selected),
        ]
        subprocess.run([*make, "--samples", "40", "--data", data, "--out", str(work)], check=True, cwd=ROOT)
        for algorithm in ("per-fedavg", "fedavg"):
            found: dict[str, list[dict]] = {}
            for _ in range(repeats):
                for peer, python in pythons.items():
                    if python is None or (peer == "flower" and (len(found.get(peer, [])) > 0 or num_ue > 1000)):
                        continue
                    number = FLOWER_ROUNDS if peer == "flower" else rounds
                    command = [python, str(HERE / "peers" / f"run_{peer}.py"), "--work", str(work)]
                    command += ["--algorithm", algorithm, "--rounds", str(number), "--warmup", "2"]
                    if (result := run_json([*command, "--threads", str(threads)])) is not None:
                        found.setdefault(peer, []).append(result)
            for peer, results in found.items():
                seconds = [each for result in results for each in result["round_seconds"]]
                keys = ("version", "per_fedavg", "startup_seconds", "peak_rss_mb", "note")
                row = {"peer": peer, "num_ue": num_ue, "selected": selected, "algorithm": algorithm, "threads": threads}
                row |= {"round_seconds": statistics.median(seconds), "rounds": len(seconds)}
                rows.append(row | {key: results[-1][key] for key in keys})
                say(f"  n = {num_ue}, {algorithm}, {peer}: {1e3 * row['round_seconds']:.1f} ms")
    return rows


def scale(threads: int) -> list[dict]:
    """Rounds of large populations, each in a process of its own."""
    command = [sys.executable, str(HERE / "scale.py"), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return [json.loads(line) for line in done.stdout.splitlines()]


def scale_table(rows: list[dict]) -> str:
    cells = [
        [f"{row['num_ue']:,}", f"{row['selected']:,}", str(row["samples"]), str(row["width"]), ms(row["round_seconds"]),
         f"{row['peak_mb']:.0f}"]
        for row in rows
    ]  # fmt: skip
    return table(["UEs", "selected", "samples a batch", "hidden units", "round [ms]", "peak memory [MB]"], cells)


def machine() -> dict:
    import torch

    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.is_file() else []
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def table(headings: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [headings, ["---"] * len(headings), *rows]) + "\n"


def ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:,.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.3g}"


def engine_table(engines: dict) -> str:
    rows = []
    for row in engines["rounds"]:
        slow = [
            f"{ms(row.get(name))} ({row[name] / row['limit']:.1f})" if name in row else "–" for name in ("vmap", "loop")
        ]
        rows.append([f"{row['num_ue']:,}", str(row["samples"]), ms(row["limit"]), f"**{ms(row['low_rank'])}**",
                     f"**{row['ratio']:.2f}**", *slow])  # fmt: skip
    return table(
        ["UEs", "samples a batch", "plain SGD [ms]", "low_rank, exact [ms]", "ratio", "vmap [ms]", "loop [ms]"], rows
    )


def field_tables(rows: list[dict]) -> str:
    counts = sorted({row["threads"] for row in rows}, reverse=True)
    parts = []
    for threads in counts:
        mine = field_table([row for row in rows if row["threads"] == threads])
        parts.append(f"{threads} thread{'s' if threads > 1 else ''}:\n\n{mine}")
    return "\n".join(parts)


def field_table(rows: list[dict]) -> str:
    lines = []
    works = list(dict.fromkeys((row["num_ue"], row["selected"]) for row in rows))
    for peer in dict.fromkeys(row["peer"] for row in rows):
        mine = {(row["num_ue"], row["algorithm"]): row for row in rows if row["peer"] == peer}
        ours = {(row["num_ue"], row["algorithm"]): row for row in rows if row["peer"] == "autofl"}
        cells = []
        for num_ue, _ in works:
            for algorithm in ("per-fedavg", "fedavg"):
                row, own = mine.get((num_ue, algorithm)), ours[num_ue, algorithm]
                ratio = (
                    "" if row is None or peer == "autofl" else f" ({row['round_seconds'] / own['round_seconds']:.1f}x)"
                )
                cells.append("–" if row is None else f"{ms(row['round_seconds'])}{ratio}")
        any_row = next(iter(mine.values()))
        memory = max(row["peak_rss_mb"] for row in mine.values())
        lines.append(
            [
                f"{NAMES[peer]} {any_row['version']}",
                *cells,
                f"{memory:,.0f}",
                mine[works[0][0], "per-fedavg"]["per_fedavg"],
            ]
        )
    heads = [
        f"{kind}, {n:,}" if n == a else f"{kind}, {a:,} of {n:,}" for n, a in works for kind in ("Per-FedAvg", "FedAvg")
    ]
    return table(["framework", *heads, "memory [MB]", "its Per-FedAvg"], lines)


def draw(results: dict) -> None:
    """The picture: time of a round against the number of UEs that train, everyone in one panel."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000")
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9.0, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        rounds = [row for row in results["engines"]["rounds"] if row["samples"] == 40]
        for place, (name, label) in enumerate(
            [
                ("low_rank", "low_rank, exact Per-FedAvg"),
                ("limit", "plain SGD, the limit"),
                ("vmap", "vmap"),
                ("loop", "loop"),
            ]
        ):
            there = [row for row in rounds if name in row]
            left.loglog(
                [row["num_ue"] for row in there],
                [1e3 * row[name] for row in there],
                "o-",
                color=colours[place],
                label=label,
            )
        left.set(xlabel="UEs in a round", ylabel="CPU time of a round [ms]", title="Our engines, 40 samples a batch")
        for place, peer in enumerate(dict.fromkeys(row["peer"] for row in results["field"])):
            most = max(row["threads"] for row in results["field"])
            there = [row for row in results["field"] if row["peer"] == peer and row["algorithm"] == "per-fedavg"]
            there = [row for row in there if row["threads"] == most]
            right.loglog([row["selected"] for row in there], [1e3 * row["round_seconds"] for row in there], "o-",
                         color=colours[place], label=NAMES[peer])  # fmt: skip
        right.set(xlabel="UEs in a round", ylabel="time of a round [ms]", title="Per-FedAvg in the field")
        for axes in (left, right):
            axes.grid(alpha=0.3, linewidth=0.5)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, fontsize=8)
        (ROOT / "docs" / "images").mkdir(parents=True, exist_ok=True)
        figure.savefig(ROOT / "docs" / "images" / "performance.png", dpi=150)


def write(results: dict) -> None:
    """The tables between the marks of docs/performance.md, and the picture."""
    page = ROOT / "docs" / "performance.md"
    text = page.read_text(encoding="utf-8")
    where, engines = results["machine"], results["engines"]
    judged = engines["evaluation"]
    blocks = {
        "machine": f"{where['date']}, {where['cpu']}, {where['cores']} cores, Python {where['python']}, PyTorch"
        f" {where['torch']}, {engines['threads']} thread, data {engines['data']}; a matrix product of the first layer's"
        f" shape runs at {engines['matrix_gflops']:.0f} GFLOP/s.\n",
        "engines": engine_table(engines),
        "lenet": engine_table({"rounds": engines["lenet"]}) if engines.get("lenet") else "Not measured in this run.\n",
        "evaluation": f"An evaluation of all 20 UEs on {judged['test_samples']:,} test samples (global and adapted"
        f" accuracy, both training losses) takes {ms(judged['evaluation'])} ms, {judged['ratio']:.2f} times the"
        f" {ms(judged['forward'])} ms of one plain forward pass over them; forming each UE's weights takes"
        f" {ms(judged['reference'])} ms.\n",
        "scale": scale_table(results["scale"]),
        "field": field_tables(results["field"]) if results["field"] else "Not measured in this run.\n",
    }
    for name, block in blocks.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        before, rest = text.split(begin, 1)
        text = before + begin + block + end + rest.split(end, 1)[1]
    page.write_text(text, encoding="utf-8")
    draw(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", default="mnist5k", choices=["mnist5k", "mnist"])
    parser.add_argument("--most", type=int, default=10_000, help="largest number of UEs for our engines")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peers", type=Path, default=SCRATCH / "peers", help="folder of the peers' environments")
    parser.add_argument("--engines-only", action="store_true", help="measure our engines anew, keep the rest")
    parser.add_argument("--redraw", action="store_true")
    given = parser.parse_args()
    if given.redraw:
        return write(json.loads(RESULTS.read_text(encoding="utf-8")))
    SCRATCH.mkdir(exist_ok=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    found = SCRATCH / "engines.json"
    command = [sys.executable, str(HERE / "engines.py"), "--threads", str(given.threads), "--data", given.data]
    subprocess.run(
        [*command, "--most", str(given.most), "--json", str(found)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL
    )
    if given.engines_only:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        results |= {"machine": machine(), "engines": json.loads(found.read_text(encoding="utf-8"))}
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        return write(results)
    results = {
        "machine": machine(),
        "engines": json.loads(found.read_text(encoding="utf-8")),
        "scale": scale(given.threads),
        "field": [] if given.no_peers else whole_field(given.peers, given.data),
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    write(results)
    say(f"docs/performance.md and {RESULTS.relative_to(ROOT)} are written")
    return None


if __name__ == "__main__":
    main()
