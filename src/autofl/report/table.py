"""A table of text: aligned on a terminal, as HTML in a notebook, as Markdown on a page."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from unicodedata import category

NUMERIC = "0123456789-–<>"
"""How the text of a number may begin, `–` standing for one that is not there."""


TAG = re.compile(r"(\\*)(<(?=[A-Za-z/!?])|(?<=\])\()")
"""The beginning of HTML, which may stand in Markdown too, or of a link or picture's address;
backslashes before it.
"""


def printable(text: str) -> str:
    """Text without what a terminal would obey: a run's words and settings may be anybody's."""
    if text.isprintable():
        return text
    fine = (
        "Cs",
        "\n",
        "\t",
    )  # surrogates stand for odd bytes of a file's name, which our streams spell out
    return "".join(
        "\ufffd"
        if category(letter)[0] == "C" and not {category(letter), letter} & set(fine)
        else letter
        for letter in text
    )


def drawn_text(text: str) -> str:
    """Words as Matplotlib draws them, on one line, with no formula in them."""
    return " ".join(printable(text).split()).replace("$", r"\$")


def markdown_text(text: str) -> str:
    """Words as Markdown shows them, on one line, with no HTML, links or pictures in them."""
    return TAG.sub(r"\1\1\\\2", " ".join(printable(text).split()))


def percent(share: float, digits: int = 0) -> str:
    """A share as every table and sentence writes it, such as 85 %."""
    return f"{100.0 * share:.{digits}f} %"


WIDTH = 80
"""Letters in a line of a terminal."""


def _width(heading: Sequence[str], cells: Sequence[str]) -> int:
    return max(map(len, [*heading, *cells]))


@dataclass(frozen=True)
class Table:
    """Headings, and rows with a cell of text for each of them."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "headings", [printable(heading) for heading in self.headings])
        object.__setattr__(self, "rows", [[printable(cell) for cell in row] for row in self.rows])

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers and are aligned on the right; never the first, which says what
        a row is.
        """
        return [
            place > 0 and all(row[place][:1] in NUMERIC for row in self.rows if row[place])
            for place in range(len(self.headings))
        ]

    def __str__(self) -> str:
        """At most 80 letters wide: long headings take several lines, and columns without room go
        below the others.
        """
        columns = [[row[place] for row in self.rows] for place in range(len(self.headings))]
        headings = [[text] for text in self.headings]
        if sum(_width(*column) + 2 for column in zip(headings, columns, strict=True)) - 2 > WIDTH:
            headings = [
                textwrap.wrap(text, max(map(len, [*text.split(), *column])))
                for text, column in zip(self.headings, columns, strict=True)
            ]
        widths = [_width(*column) for column in zip(headings, columns, strict=True)]

        blocks = [[0]]
        room = WIDTH - widths[0]
        for place in range(1, len(widths)):
            if len(blocks[-1]) > 1 and widths[place] + 2 > room:
                blocks.append([0])
                room = WIDTH - widths[0]
            blocks[-1].append(place)
            room -= widths[place] + 2

        numeric = self.numeric

        def line(texts: Mapping[int, str], block: Sequence[int]) -> str:
            padded = (
                texts[place].rjust(widths[place])
                if numeric[place]
                else texts[place].ljust(widths[place])
                for place in block
            )
            return "  ".join(padded).rstrip()

        lines = [self.title] if self.title else []
        for block in blocks:
            lines += [""] if block is not blocks[0] else []
            tall = max(len(headings[place]) for place in block)
            above = {
                place: [""] * (tall - len(headings[place])) + headings[place] for place in block
            }
            lines += [
                line({place: above[place][row] for place in block}, block) for row in range(tall)
            ]
            lines.append("  ".join("-" * widths[place] for place in block))
            lines += [line(dict(enumerate(row)), block) for row in self.rows]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        sides = [f' style="text-align: {"right" if right else "left"}"' for right in self.numeric]

        def line(row: Sequence[str], tag: str) -> str:
            cells = (
                f"<{tag}{side}>{escape(text)}</{tag}>"
                for text, side in zip(row, sides, strict=True)
            )
            return f"<tr>{''.join(cells)}</tr>"

        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        body = "".join(line(row, "td") for row in self.rows)
        return f"<table>{caption}<thead>{line(self.headings, 'th')}</thead><tbody>{body}</tbody></table>"

    def markdown(self) -> str:
        """The table as Markdown, without its title."""
        headings, *rows = [
            [markdown_text(cell) for cell in row] for row in (self.headings, *self.rows)
        ]
        lines = [headings, ["---"] * len(headings), *rows]
        return "\n".join(
            "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in lines
        )
