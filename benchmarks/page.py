"""docs/performance.md and its pictures from the results of `bench.py`: tables between marks,
nothing measured.
"""

from pathlib import Path

from autofl.report.plots import COLOURS, figure_of

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
NAMES = {
    "autofl": "AutoFL",
    "fedjax": "FedJAX",
    "pfl": "pfl-research",
    "fluke": "fluke",
    "flower": "Flower simulation",
}
MODELS = {"mlp": "MLP 784-100-10", "lenet5": "LeNet-5 on CIFAR-10"}
REST = "the rest"
NOT_MEASURED = "Not measured in this run.\n"


def table(headings: list[str], rows: list[list[str]]) -> str:
    return (
        "\n".join(
            "| " + " | ".join(cells) + " |" for cells in [headings, ["---"] * len(headings), *rows]
        )
        + "\n"
    )


def ms(seconds: float | None) -> str:
    return (
        "–"
        if seconds is None
        else f"{1e3 * seconds:,.0f}"
        if seconds >= 0.1
        else f"{1e3 * seconds:.3g}"
    )


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def engine_table(found: list[dict]) -> str:
    rows = []
    for row in found:
        slow = [
            f"{ms(row.get(name))} ({row[name] / row['limit']:.1f})" if name in row else "–"
            for name in ("vmap", "loop")
        ]
        narrow = row.get("narrow_limit")
        rows.append([f"{row['num_ue']:,}", str(row["samples"]), ms(row["limit"]), f"**{ms(row['low_rank'])}**",
                     f"**{row['ratio']:.2f}**", *([f"{row['low_rank'] / narrow:.2f}"] if narrow else []),
                     *slow])  # fmt: skip
    headings = [
        "UEs",
        "samples a batch",
        "plain SGD [ms]",
        "low_rank, exact [ms]",
        "ratio",
        "vmap [ms]",
        "loop [ms]",
    ]
    if any("narrow_limit" in row for row in found):
        headings.insert(5, "ratio, zeros left out of both")
    return table(headings, rows)


def evaluation_text(judged: dict) -> str:
    def against(name: str) -> str:
        return f"{ms(judged[name])} ms, {judged[name] / judged['forward']:.2f} times as long"

    return (
        f"One plain forward pass over all {judged['test_samples']:,} test samples of 20 UEs takes"
        f" {ms(judged['forward'])} ms, and {ms(judged['ready'])} ms if the samples are in memory, where an evaluation"
        f" keeps them. Global and adapted accuracy on all of them take {against('accuracies')}. A default evaluation,"
        f" with both training losses on {judged['train_samples']} samples of each UE, takes {against('evaluation')}."
        f" If each UE's weights were formed for it, it would take {ms(judged['reference'])} ms.\n"
    )


def scale_table(rows: list[dict]) -> str:
    cells = [
        [f"{row['num_ue']:,}", f"{row['selected']:,}", str(row["samples"]), str(row["width"]), ms(row["round_seconds"]),
         f"{row['peak_mb']:.0f}"]
        for row in rows
    ]  # fmt: skip
    return table(
        ["UEs", "selected", "samples a batch", "hidden units", "round [ms]", "peak memory [MB]"],
        cells,
    )


def profile_tables(profile: dict) -> str:
    rounds = profile["rounds"]
    kinds = list(
        dict.fromkeys(kind for found in rounds.values() for kind in found["shares"] if kind != REST)
    )
    cells = [
        [kind, *(percent(found["shares"].get(kind)) for found in rounds.values())]
        for kind in (*kinds, REST)
    ]
    heads = [f"{MODELS[name]}, {ms(found['round_seconds'])} ms" for name, found in rounds.items()]
    slower = (
        max(found["profiled_seconds"] / found["round_seconds"] for found in rounds.values()) - 1
    )
    whole = profile["comparison"]
    parts = [[kind, percent(share)] for kind, share in whole["shares"].items()]
    head = f"{whole['runs']} runs of {whole['rounds']} rounds on {whole['data']}, {whole['seconds']:.0f} s in one process"
    return (
        f"{table(['part of a round', *heads], cells)}\n{table(['part of a comparison', head], parts)}\n"
        f"The profiler itself makes a round up to {percent(slower)} slower. With a process for each of the"
        f" {whole['workers']} cores the comparison takes {whole['together']:.0f} s.\n"
    )


def field_tables(rows: list[dict]) -> str:
    parts = []
    for model in MODELS:
        there = [row for row in rows if row["model"] == model]
        if not there:
            parts.append(
                f"{MODELS[model]}: not measured in this run (CIFAR-10 must be here: `autofl data fetch cifar10`).\n"
            )
        for threads in sorted({row["threads"] for row in there}, reverse=True):
            mine = field_table([row for row in there if row["threads"] == threads])
            parts.append(
                f"{MODELS[model]}, {threads} thread{'s' if threads > 1 else ''}:\n\n{mine}"
            )
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
                    ""
                    if row is None or peer == "autofl"
                    else f" ({row['round_seconds'] / own['round_seconds']:.1f}x)"
                )
                cells.append("–" if row is None else f"{ms(row['round_seconds'])}{ratio}")
        any_row = next(iter(mine.values()))
        memory = max(row["peak_rss_mb"] for row in mine.values())
        lines.append(
            [f"{NAMES[peer]} {any_row['version']}", *cells, f"{memory:,.0f}", any_row["per_fedavg"]]
        )
    heads = [
        f"{kind}, {n:,}" if n == a else f"{kind}, {a:,} of {n:,}"
        for n, a in works
        for kind in ("Per-FedAvg", "FedAvg")
    ]
    return table(["framework", *heads, "memory [MB]", "its Per-FedAvg"], lines)


def draw_rounds(engines: dict, field: list[dict]) -> None:
    """Time of a round against the number of UEs that train: our engines, and everyone on the MLP."""
    labels = {
        "low_rank": "low_rank, exact Per-FedAvg",
        "limit": "plain SGD, the limit",
        "vmap": "vmap",
        "loop": "loop",
    }
    with figure_of(9.0, 3.8) as figure:
        left, right = figure.subplots(1, 2)
        rounds = [row for row in engines["rounds"] if row["samples"] == 40]
        for colour, (name, label) in zip(COLOURS, labels.items(), strict=False):
            there = [row for row in rounds if name in row]
            left.loglog(
                [row["num_ue"] for row in there],
                [1e3 * row[name] for row in there],
                "o-",
                color=colour,
                label=label,
            )
        left.set(
            xlabel="UEs in a round",
            ylabel="CPU time of a round [ms]",
            title="Our engines, 40 samples a batch",
        )
        most = max((row["threads"] for row in field), default=1)
        shown = [
            row
            for row in field
            if (row["model"], row["algorithm"], row["threads"]) == ("mlp", "per-fedavg", most)
        ]
        for colour, peer in zip(COLOURS, dict.fromkeys(row["peer"] for row in shown), strict=False):
            there = [row for row in shown if row["peer"] == peer]
            right.loglog([row["selected"] for row in there], [1e3 * row["round_seconds"] for row in there], "o-",
                         color=colour, label=NAMES[peer])  # fmt: skip
        right.set(
            xlabel="UEs in a round", ylabel="time of a round [ms]", title="Per-FedAvg in the field"
        )
        for axes in (left, right):
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=8)
        figure.savefig(IMAGES / "performance.png", dpi=150)


def draw_scale(rows: list[dict]) -> None:
    """Time and memory of a round against n, d and the width of the network, the two others as they
    are by default.
    """
    default = {"num_ue": 100, "samples": 40, "width": 100}
    titles = {
        "num_ue": "n, UEs in a round",
        "samples": "d, samples of a UE in a round",
        "width": "hidden units",
    }
    there = [row for row in rows if row["num_ue"] == row["selected"]]
    with figure_of(9.0, 3.2) as figure:
        panels = figure.subplots(1, 3, sharey=True)
        for axes, (key, title) in zip(panels, titles.items(), strict=True):
            line = [
                row
                for row in there
                if all(row[name] == default[name] for name in titles if name != key)
            ]
            line.sort(key=lambda row: row[key])
            x = [3 * row[key] if key == "samples" else row[key] for row in line]
            axes.loglog(x, [1e3 * row["round_seconds"] for row in line], "o-", color=COLOURS[0])
            axes.set_xlabel(title)
            axes.tick_params(axis="y", which="both", colors=COLOURS[0])
            memory = axes.twinx()
            memory.loglog(x, [row["peak_mb"] for row in line], "s--", color=COLOURS[1])
            axes.set_xticks(x, [f"{value:,}" for value in x])
            axes.set_xticks([], minor=True)
            memory.set_ylim(100, max(1000.0, *(1.1 * row["peak_mb"] for row in there)))
            memory.set_yticks(
                [100, 200, 500, 1000],
                ["100", "200", "500", "1,000"] if axes is panels[-1] else [""] * 4,
            )
            memory.set_yticks([], minor=True)
            memory.tick_params(axis="y", colors=COLOURS[1])
            memory.grid(visible=False)
        panels[0].set_ylabel("time of a round [ms], solid", color=COLOURS[0])
        memory.set_ylabel("peak memory [MB], dashed", color=COLOURS[1])
        figure.savefig(IMAGES / "scale.png", dpi=150)


def machine_text(results: dict) -> str:
    where, engines, dates = results["machine"], results["engines"], {}
    for part, date in results["measured"].items():
        dates.setdefault(date, []).append(part)
    when = "; ".join(f"{date} ({', '.join(parts)})" for date, parts in dates.items())
    return (
        f"Measured {when} on {where['cpu']}, {where['cores']} cores, Python {where['python']}, PyTorch"
        f" {where['torch']}; our engines with {engines['threads']} thread on {engines['data']}; a matrix product of the"
        f" first layer's shape runs at {engines['matrix_gflops']:.0f} GFLOP/s.\n"
    )


def write(results: dict) -> None:
    """The tables between the marks of docs/performance.md, and the pictures; a part not there is
    said to be missing.
    """
    page = ROOT / "docs" / "performance.md"
    text = page.read_text(encoding="utf-8")
    engines = results["engines"]
    blocks = {
        "machine": machine_text(results),
        "engines": engine_table(engines["rounds"]),
        "lenet": engine_table(engines["lenet"]) if engines["lenet"] else NOT_MEASURED,
        "evaluation": evaluation_text(engines["evaluation"]),
        "profile": profile_tables(results["profile"]) if "profile" in results else NOT_MEASURED,
        "scale": scale_table(results["scale"]) if "scale" in results else NOT_MEASURED,
        "field": field_tables(results["field"]) if "field" in results else NOT_MEASURED,
    }
    for name, block in blocks.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        before, rest = text.split(begin, 1)
        text = before + begin + block + end + rest.split(end, 1)[1]
    page.write_text(text, encoding="utf-8")
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw_rounds(engines, results.get("field", []))
    if "scale" in results:
        draw_scale(results["scale"])
