"""A table of text: aligned on a terminal, as HTML in a notebook, as Markdown on a page."""

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from rich.console import Console

NUMERIC = "0123456789-–<>"
"""How the text of a number may begin, `–` standing for one that is not there."""


TAG = re.compile(r"(\\*)(<(?=[A-Za-z/!?])|(?<=\])\()")
"""The beginning of HTML, which may stand in Markdown too, or of a link or picture's address;
backslashes before it.
"""


def printable(text: str) -> str:
    """Text without what a terminal would obey: a run's words and settings may be anybody's.

    Surrogates stay. They stand for odd bytes of a file's name, which our streams spell out.
    """
    if text.isprintable():
        return text
    return "".join("\ufffd" if _commands(letter) else letter for letter in text)


def _commands(letter: str) -> bool:
    kind = category(letter)
    return kind.startswith("C") and kind != "Cs" and letter not in "\n\t"


def drawn_text(text: str) -> str:
    """Words as Matplotlib draws them, on one line, with no formula in them."""
    return " ".join(printable(text).split()).replace("$", r"\$")


def markdown_text(text: str) -> str:
    """Words as Markdown shows them, on one line, with no HTML, links or pictures in them."""
    return TAG.sub(r"\1\1\\\2", " ".join(printable(text).split()))


def percent(share: float, digits: int = 0) -> str:
    """A share as every table and sentence writes it, such as 85 %."""
    return f"{100.0 * share:.{digits}f} %"


NONE = "–"
"""A number that is not there."""


def number_text(value: float | None, form: str = "g", missing: str = NONE) -> str:
    """A number in this format; other words where there is none, or it is not finite."""
    if value is None or not math.isfinite(value):
        return missing
    return format(value, form)


def counted(number: int, thing: str) -> str:
    """One run, two runs."""
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"


WIDTH = 80
"""Letters in a line where nobody says how many there are."""
GAP = 2
"""Blanks between two columns."""
WORD = 24
"""Length from which a word, such as a path, may be broken."""
LABEL = 32
"""Width from which the first column is wrapped."""


@dataclass(frozen=True)
class Table:
    """Headings, and rows with a cell of text for each of them."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "headings", [printable(heading) for heading in self.headings])
        object.__setattr__(self, "rows", [[printable(cell) for cell in row] for row in self.rows])

    @cached_property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers and are aligned on the right; never the first, which says what
        a row is.
        """
        numeric = [False]
        for column in range(1, len(self.headings)):
            beginnings = {cell[0] for cell in self._column(column) if cell}
            numeric.append(beginnings <= set(NUMERIC))
        return numeric

    def __str__(self) -> str:
        return self.text(WIDTH)

    def text(self, width: int) -> str:
        """The table in lines of at most so many letters."""
        from rich.console import Console

        lines = io.StringIO()
        self.show_on(Console(file=lines, width=width, markup=False, highlight=False))
        return "\n".join(line.rstrip() for line in lines.getvalue().splitlines())

    def show_on(self, console: "Console") -> None:
        """Text is wrapped, numbers never are. What is still too wide is shown in pieces one below
        the other, each with the first column.
        """
        from rich import box
        from rich.table import Table as Drawn

        numeric = self.numeric
        least = self._least_widths()
        for number, columns in enumerate(_pieces(least, console.width)):
            drawn = Drawn(
                title=self.title if number == 0 else None,
                title_justify="left",
                box=box.SIMPLE_HEAD,
                show_edge=False,
                pad_edge=False,
                padding=(0, GAP - 1, 0, 0),
            )
            letters = self._widths(least, columns, console.width)
            for column in columns:
                drawn.add_column(
                    self.headings[column],
                    justify="right" if numeric[column] else "left",
                    overflow="fold",
                    width=letters[column],
                )
            for row in self.rows:
                drawn.add_row(*(row[column] for column in columns))
            if number > 0:
                console.print()
            console.print(drawn)

    def _column(self, column: int) -> list[str]:
        return [row[column] for row in self.rows]

    def _least_widths(self) -> list[int]:
        """The letters that each column needs: of numbers the longest, of text and headings the
        longest word.
        """
        widths = []
        for column, heading in enumerate(self.headings):
            cells = self._column(column)
            words = " ".join(cells).split()
            if self.numeric[column]:
                needed = _longest(cells)
            elif column == 0:
                needed = min(LABEL, _longest(cells))
            else:
                needed = min(WORD, _longest(words))
            widths.append(max(needed, min(WORD, _longest(heading.split()))))
        return widths

    def _widths(self, least: Sequence[int], columns: Sequence[int], width: int) -> dict[int, int]:
        """Letters of each of these columns: what it needs, and a fair share of what is left where
        that saves a line.
        """
        spare = width - sum(least[column] for column in columns) - GAP * (len(columns) - 1)
        missing = {
            column: _longest([self.headings[column], *self._column(column)]) - least[column]
            for column in columns
        }

        # Text comes first, since of numbers only the headings are wrapped. Whoever misses least
        # is served first, so that what it leaves is shared by the others.
        order = sorted(columns, key=lambda column: (self.numeric[column], missing[column]))
        widths = {}
        for kind in (False, True):
            waiting = [column for column in order if self.numeric[column] == kind]
            for served, column in enumerate(waiting):
                share = spare // (len(waiting) - served)
                given = max(0, min(missing[column], share))
                widths[column] = min(width, least[column] + given)
                spare -= given
        return widths

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        body = "".join(self._html_row(row, "td") for row in self.rows)
        head = self._html_row(self.headings, "th")
        return f"<table>{caption}<thead>{head}</thead><tbody>{body}</tbody></table>"

    def _html_row(self, row: Sequence[str], tag: str) -> str:
        cells = []
        for text, numeric in zip(row, self.numeric, strict=True):
            side = "right" if numeric else "left"
            cells.append(f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>')
        return f"<tr>{''.join(cells)}</tr>"

    def markdown(self) -> str:
        """The table as Markdown, without its title."""
        lines = []
        for row in (self.headings, ["---"] * len(self.headings), *self.rows):
            cells = [markdown_text(cell).replace("|", "\\|") for cell in row]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


def _pieces(least: Sequence[int], width: int) -> list[list[int]]:
    """Columns that fit side by side, the first one in each piece; a column that fits nowhere stands
    alone.
    """
    pieces = [[0]]
    used = least[0]
    for column, needed in enumerate(least[1:], start=1):
        if used + GAP + needed > width and len(pieces[-1]) > 1:
            pieces.append([0])
            used = least[0]
        pieces[-1].append(column)
        used += GAP + needed
    return pieces
