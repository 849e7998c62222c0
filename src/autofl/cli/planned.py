"""What `autofl plan` shows: a round, a forecast, a choice and its reasons, as tables and sentences."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autofl.cli.screen import say, show_line, show_table
from autofl.cli.shared import sets
from autofl.report.table import NONE, Table, number_text

if TYPE_CHECKING:
    from autofl.config import Settings
    from autofl.forecast.choose import Candidate, Choice
    from autofl.forecast.explain import Bound, Explained, Step
    from autofl.forecast.predict import Forecast

REASONS = {
    "power": "cannot be decoded even at P_max",
    "energy": "lack energy",
    "data": "own too few samples",
}
"""Why a UE takes no part, by the words of `RoundPlan.reasons`."""
NEVER = "never"
DECIDED = {
    "local_steps": ("steps", 1.0, "{:.0f}"),
    "bits_per_weight": ("bits", 1.0, "{:.3g}"),
    "bandwidth": ("band [MHz]", 1e-6, "{:.3f}"),
    "cpu_frequency": ("CPU [GHz]", 1e-9, "{:.3f}"),
}
"""Decisions that are shown where a planner makes them: heading, factor, format."""


def show_round(table: dict[str, Any]) -> None:
    """A planned round as a table, and what it amounts to in a line or two."""
    ues = table["ues"]
    planner = table["planner"]
    is_joint = planner == "joint"
    decided = list(DECIDED) if is_joint else []
    headings = ["UE", "distance [m]", "samples", *(DECIDED[name][0] for name in decided), "power [mW]", "SNR [dB]",
                "compute [ms]", "upload [ms]", "energy [mJ]", "status"]  # fmt: skip
    title = (
        f"One round of all UEs, planner {planner}" if is_joint else f"One round, planner {planner}"
    )
    show_table(Table(headings, [_round_row(ue, decided) for ue in ues], title))

    # Standard output: the round as it was drawn, and what it is made of.
    feasible = table["num_feasible"]
    statuses = Counter(ue["status"].replace("_", " ") for ue in ues)
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    time = f"round time {table['round_time']:.4g} s" if feasible else "no round"
    show_line(f"{time}; {feasible} of {len(ues)} UEs take part; status: {counts}")
    if feasible:
        show_line(_parts(table))
    if "downlink" in table:
        say(_downlink(table["downlink"]))
    if feasible and abs(table["round_time"] / table["planned_time"] - 1.0) > 1e-9:
        show_line(
            f"planned: {table['planned_time']:.4g} s, if every update arrives at its first transmission; the round time"
            " above is one of many draws of the channel, with its retransmissions: other rounds have others"
        )

    # Remarks on the plan.
    if statuses["left out"]:
        say(
            "left out: these UEs could take part, but would delay the others by more than they contribute"
        )
    certificate = table["certificate"] or {}
    if feasible and certificate.get("lower") and certificate.get("upper"):
        say(_proof(**certificate))


def _proof(lower: float, upper: float, residual: float | None, **_: object) -> str:
    """How near a plan is proved to be to the best one; a gap below 1e-15 is rounding."""
    gap = max((upper - lower) / upper, 1e-15)
    words = (
        f"with these UEs, steps, samples and bits, band, power and frequency are proved to be within {gap:.0e}"
        " of the least planned round time"
    )
    return words if residual is None else f"{words} (KKT residual {residual:.0e})"


def _parts(table: dict[str, Any]) -> str:
    """What a round is made of: its slowest UE, what is sent down, and what the cell adds."""
    computing = 1e3 * table["slowest_compute_time"]
    sending = 1e3 * table["slowest_upload_time"]
    return (
        f"of the round: computing {computing:.4g} ms and sending {sending:.4g} ms of UE {table['slowest']}, the"
        f" slowest; downlink {1e3 * table['downlink_time']:.4g} ms; overhead {1e3 * table['overhead']:.4g} ms"
    )


def _downlink(choice: dict[str, float]) -> str:
    """Why the message down has its bits."""
    down = f"{1e3 * choice['time']:.4g} ms"
    whole = f"{1e3 * choice['whole_time']:.4g} ms"
    if choice["lost"] == 0.0:
        return (
            f"downlink: 32 bits a weight; its {down} are too short for a compressed message to pay"
        )
    return (
        f"downlink: {choice['bits_per_weight']:.3g} bits a weight, the most progress per second: {down} instead of"
        f" {whole} with 32 bits, and about {100 * choice['lost']:.2g} % of the difference is left for the next message;"
        " in a run this is measured and decided in every round"
    )


def _round_row(ue: dict[str, Any], decided: Sequence[str]) -> list[str]:
    shown = []
    for name in decided:
        _, factor, form = DECIDED[name]
        # What is decided for a UE that takes no part means nothing.
        shown.append(NONE if ue["num_samples"] == 0 else form.format(factor * ue[name]))
    status = ue["status"].replace("_", " ")
    if ue["infeasible_because"]:
        status += f" ({ue['infeasible_because']})"
    return [
        str(ue["id"]),
        f"{ue['distance']:.1f}",
        str(ue["num_samples"]),
        *shown,
        f"{1e3 * ue['tx_power']:.3f}",
        f"{10 * math.log10(ue['snr']):.1f}" if ue["snr"] > 0 else NONE,
        f"{1e3 * ue['compute_time']:.2f}",
        f"{1e3 * ue['upload_time']:.1f}",
        f"{1e3 * ue['energy']:.3f}",
        status,
    ]


def nobody(reasons: Sequence[str]) -> str:
    counts = (
        f"{count} {REASONS.get(reason, reason)}" for reason, count in Counter(reasons).most_common()
    )
    return f"nobody can take part in this round: {', '.join(counts)}"


def say_forecast(coming: "Forecast", settings: "Settings") -> None:
    """The forecast in words, where it comes from and how far it can be trusted."""
    rows = []
    for name, factor, quantity in (
        ("rounds", 1.0, coming.rounds),
        ("learning time [s]", 1.0, coming.sim_time),
        ("energy per UE [mJ]", 1e3, coming.energy),
    ):
        median, low, high = (factor * value for value in quantity)
        rows.append([name, f"{median:.3g}", f"{low:.3g} to {number_text(high, '.3g', NEVER)}"])
    settings = settings.resolved()
    metric = settings.stop.metric
    to = f"{settings.arm_name} to {100 * coming.target:g} % {metric}"
    show_table(Table([to, "median", "95 % of runs"], rows))
    say(
        f"forecast of the {metric} accuracy of {settings.model.name} on {settings.data.file or settings.data.name}"
    )
    say(
        f"fitted from {coming.num_pilots} pilots ({coming.source}); single runs scatter by {100 * coming.scatter:.0f} %"
        " around the fit; valid for this data, partition, model, step sizes and number of UEs"
    )
    if coming.outside:
        say(f"careful: {', '.join(coming.outside)} lies outside the pilots, so this extrapolates")
    if coming.short:
        say(
            f"careful: {coming.short} of {coming.num_pilots} pilots end below {100 * coming.target:g} %; they count as"
            " needing more rounds than they ran"
        )
    if coming.coarse:
        say(coarse_words(coming.coarse, coming.num_pilots, coming.target))
    if not coming.checked:
        say("not checked: whether every label is heard, since the samples are not available")
    if coming.unheard:
        say(
            f"careful: UEs that are hardly ever heard: {coming.unheard}; the model will not fit their data"
        )
    if coming.never:
        say(f"careful: {coming.never} of the drawn networks never reach the target")


def coarse_words(coarse: int, num_pilots: int, target: float) -> str:
    return (
        f"careful: {coarse} of {num_pilots} pilots are at {100 * target:g} % at their first evaluation already, so"
        " rounds and pace say how often accuracy was measured, not how fast it grows; make pilots and plan with"
        " --set evaluation.every=1"
    )


def say_choice(choice: "Choice", given: Sequence[str]) -> None:
    """The candidates as a table, the choice in words, and the command that runs it."""
    best = choice.best
    headings = ["thrift", "UEs asked", "heard", "steps", "samples", "bits", "accuracy", "rounds",
                "time [s]", "95 % of runs", "energy per UE [mJ]", ""]  # fmt: skip
    rows = [_candidate_row(one, choice) for one in choice.candidates]
    show_table(
        Table(
            headings,
            rows,
            "Time against energy: with more thrift, or fewer UEs, a run needs less energy",
        )
    )
    say_forecast(best.forecast, best.settings)
    for remark in choice.remarks:
        say(remark)
    asked = best.settings.simulation.num_selected
    band = best.settings.cell.total_bandwidth
    who = f"among {asked} UEs drawn for each round"
    if asked == best.settings.cell.count:
        who = "among all UEs"
    if band is not None:
        who += f", which share {1e-6 * band:.4g} MHz"
    say(f"chosen: thrift {best.thrift:g}; the planner chooses {who}")
    say("run it: " + " ".join(["autofl simulate", *given, *sets(choice.changes)]), whole=True)


def _candidate_row(one: "Candidate", choice: "Choice") -> list[str]:
    coming = one.forecast
    remarks = {
        "chosen": one is choice.best,
        "extrapolates": bool(coming.outside),
        "no gain": one not in choice.front,
    }
    median, low, high = coming.sim_time
    return [
        f"{one.thrift:g}",
        str(one.num_selected),
        f"{one.heard:.3g}",
        f"{one.local_steps:g}",
        f"{one.num_samples:g}",
        f"{one.bits_per_weight:.3g}",
        f"{100 * coming.target:g} %",
        f"{coming.rounds[0]:.1f}",
        f"{median:.3g}",
        f"{low:.3g} to {number_text(high, '.3g', NEVER)}",
        f"{1e3 * coming.energy[0]:.3g}",
        ", ".join(remark for remark, holds in remarks.items() if holds),
    ]


def show_decisions(decisions: Sequence[dict[str, str]]) -> None:
    """What is decided beyond the parts of single UEs, and why."""
    rows = [[row["decision"], row["value"], row["reason"]] for row in decisions]
    show_table(Table(["decision", "value", "why"], rows, "What is decided, and why"))


def show_bounds(bounds: "Sequence[Bound]", table: dict[str, Any]) -> None:
    """What keeps each UE of the planned round from being faster."""
    rows = [
        [str(bound.ue), _bound_words(bound, ue, table["round_time"]), f"{100 * bound.spare:.0f} %"]
        for bound, ue in zip(bounds, table["ues"], strict=True)
    ]
    show_table(
        Table(["UE", "what binds it", "energy left"], rows, "What binds each UE in this round")
    )


def _bound_words(bound: "Bound", ue: dict[str, Any], round_time: float) -> str:
    if bound.round_time is not None and bound.slower is not None:
        longer = 100 * (bound.round_time / round_time - 1.0)
        length = f"{longer:.0f} % longer" if longer >= 0.0 else f"{-longer:.0f} % shorter"
        cost = "learning about as fast"
        if bound.slower >= 0.005:
            cost = f"learning {100 * bound.slower:.0f} % slower"
        return f"left out; with it the round would be {length}, {cost}"
    if ue["status"] == "infeasible":
        because = ue["infeasible_because"]
        return f"cannot take part: {REASONS.get(because, because)}"
    return ", ".join(bound.binds) or "nothing: it finishes before the others"


MORE_UNITS = {"J": (1e3, "mJ"), "Hz": (1e-6, "MHz"), "W": (1e3, "mW"), "cycle/s": (1e-9, "GHz")}
NO_GAIN = 5e-4
"""A share up to which a gain is shown as none."""
MORE_WORDS = {
    "max_energy": "energy",
    "bandwidth": "band",
    "max_power": "power",
    "cpu_frequency": "CPU frequency",
}


def show_explained(explained: "Explained", best: "Candidate") -> None:
    """The waterfall, what each decision is worth alone, and what more of a resource would gain."""
    rows = [_step_row(explained.before, NONE)]
    rows += [_step_row(step, number_text(step.factor, ".2f")) for step in explained.waterfall]
    title = f"Time to {100 * best.forecast.target:g} %, decisions switched on one after another"
    show_table(Table(["decision", "time [s]", "times faster", ""], rows, title))
    rows = [_step_row(step, number_text(step.factor, ".2f")) for step in explained.left_out]
    show_table(Table(["left out alone", "time [s]", "times slower", ""], rows))

    rows = []
    for more in explained.more:
        factor, unit = MORE_UNITS[more.unit]
        gain = more.gain if abs(more.gain) > NO_GAIN else 0.0
        price = f"{1e3 * more.price / factor:.3g} ms for 1 {unit}"
        rows.append([MORE_WORDS[more.resource], f"{100 * gain:.1f} %", price])
    title = "Time that more of a resource would save"
    show_table(Table(["more at every UE", "10 % more saves", "shadow price"], rows, title))
    say(
        "10 % more: everything is planned again; shadow price: participants, steps, samples and bits stay the same"
    )


def _step_row(step: "Step", factor: str) -> list[str]:
    remark = "extrapolates" if step.outside else ""
    return [step.decision, number_text(step.time, ".4g", NEVER), factor, remark]
