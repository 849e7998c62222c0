"""Draws the pictures of docs/architecture.md: the rooms of the package, and the way of one round.

The rooms are the rows of that page, so the drawing follows the text: `python tools/drawings.py`.
"""

import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
WIDTH = 820
STYLE = """<style>
svg { font-family: system-ui, sans-serif; font-size: 14px }
.page { fill: #ffffff } .box { fill: #eef3fa; stroke: #4a6fa5 } .frame { fill: none; stroke: #8a93a0; stroke-dasharray: 5 4 }
text { fill: #1b2430 } .file { font-family: ui-monospace, monospace; font-size: 12px; fill: #40546e }
.name { font-weight: 600 } .way { fill: none; stroke: #1b2430; stroke-width: 1.5; marker-end: url(#tip) } #tip path { fill: #1b2430 }
@media (prefers-color-scheme: dark) {
.page { fill: #14181f } .box { fill: #1f2a3a; stroke: #7fa3d8 } .frame { stroke: #6d7786 } text { fill: #e6eaf0 }
.file { fill: #a9bcd6 } .way { stroke: #e6eaf0 } #tip path { fill: #e6eaf0 } }
</style>"""
TIP = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>'


def rooms_of(page: str) -> list[tuple[list[str], str]]:
    """The rows of rooms on the page, each with what is said of it."""
    block = page.partition("```text\n")[2].partition("```")[0]
    rows = [re.split(r" {2,}", line, maxsplit=1) for line in block.splitlines()]
    return [(names.split(), said) for names, said in rows]


def draw_rooms(page: str) -> str:
    """The rooms, one row above the other: each may import from the rows above it."""
    parts = []
    y = 16
    for names, said in rooms_of(page):
        x = 20
        for name in names:
            width = 8.6 * len(name) + 18
            parts.append(_box(x, y, width, 28))
            parts.append(_text(x + width / 2, y + 19, name, "name"))
            x += width + 6
        # A long row has its words below it.
        beside = x < 460
        parts.append(
            _text(470 if beside else 20, y + 19 if beside else y + 46, said, "file", "start")
        )
        y += 38 if beside else 60
    middle = y / 2
    parts.append(f'<path class="way" d="M806 {y - 6}V20"/>')
    parts.append(
        f'<g transform="rotate(-90 796 {middle:g})">{_text(796, middle, "may import")}</g>'
    )
    return _picture(
        "The rooms of autofl: each row imports only from the rows above it", y + 8, parts
    )


DECIDED = [
    ("cell", "who is selected", "selection/base.py"),
    ("gains", "true and known", "channels/base.py"),
    ("plan", "every decision", "planner/base.py"),
    ("cost", "time and energy", "network/cost.py"),
]
LEARNED = [
    ("train", "client updates", "engines/updates.py"),
    ("compress", "what really arrives", "engines/compressed.py"),
    ("aggregate", "the server's step", "robust/aggregators/"),
    ("evaluate", "accuracy and loss", "evaluation/evaluator.py"),
]
CARRIED = ("Checkpoint", "for the next round", "core/checkpoint.py")
RECORDED = ("record", "rounds.csv, ues.csv, checkpoints", "jobs/recording.py, records/writer.py")


def draw_round() -> str:
    """The way of a round: what is decided, what is learned, what is kept."""
    parts = [
        _frame(8, 12, 804, 322, "core/play.py"),
        _frame(24, 40, 776, 116, "core/decide.py"),
        _frame(24, 186, 391, 140),
        *_row(DECIDED, 68),
        *_row(LEARNED, 196),
        _text(36, 292, "the World: core/simulation.py,", "file", "start"),
        _text(36, 312, "core/together.py or deploy/world.py", "file", "start"),
        # From the cost to the training, and from the evaluation to what is kept and to the next round.
        '<path class="way" d="M701 144V171H119V194"/>',
        '<path class="way" d="M701 272V370"/>',
        '<path class="way" d="M701 348H119V370"/>',
        '<path class="way" d="M32 408H16V106H30"/>',
        *_step(32, 372, 174, CARRIED),
        *_step(226, 372, 562, RECORDED),
    ]
    return _picture("One round: decide, train, aggregate, evaluate, record", 460, parts)


def _row(steps: list[tuple[str, str, str]], y: int) -> list[str]:
    parts = []
    for place, step in enumerate(steps):
        x = 32 + 194 * place
        parts += _step(x, y, 174, step)
        if place:
            parts.append(f'<path class="way" d="M{x - 20} {y + 38}H{x - 2}"/>')
    return parts


def _step(x: int, y: int, width: int, step: tuple[str, str, str]) -> list[str]:
    name, said, file = step
    middle = x + width / 2
    return [
        _box(x, y, width, 76),
        _text(middle, y + 22, name, "name"),
        _text(middle, y + 42, said),
        _text(middle, y + 62, file, "file"),
    ]


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'


def _frame(x: int, y: int, width: int, height: int, *said: str) -> str:
    rect = f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
    lines = [_text(x + 12, y + 20 + 16 * i, line, "file", "start") for i, line in enumerate(said)]
    return rect + "".join(lines)


def _text(x: float, y: float, said: str, kind: str = "said", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(said)}</text>'


def _picture(title: str, height: int, parts: list[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        STYLE,
        TIP,
        '<rect class="page" width="100%" height="100%"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    (DOCS / "images" / "rooms.svg").write_text(draw_rooms(page), encoding="utf-8")
    (DOCS / "images" / "round.svg").write_text(draw_round(), encoding="utf-8")


if __name__ == "__main__":
    main()
