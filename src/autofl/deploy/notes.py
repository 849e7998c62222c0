"""What people are told of a run besides its rounds: each cause once, in a line, and who is back."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from autofl.deploy.fleet import Fleet, node_words
from autofl.records.devices import NOBODY

MOST = 50
"""Lines of a run: a device that is refused for ever new reasons must not fill a manifest."""
AWAY = "away; if it was started again, the SuperLink lets it in after up to a minute"
ABSENT = "not here yet; it takes part as soon as it connects"
PERHAPS = "not here yet, unless it is a node that takes no part because of an error"
ABSENCES = (AWAY, ABSENT, PERHAPS)
HERE = "here now"
MOST_TIMES = 3
"""How often a device is said to be away: one that comes and goes must not fill a manifest either.
"""
NO_MORE = "; it comes and goes, so no more is said of that"


class Notes:
    """The lines of a run so far."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._gone: set[str] = set()
        self._times = Counter[str]()
        self.lines: list[str] = []

    def tell(self, k: int, remarks: Iterable[tuple[str, str]]) -> None:
        """What is said of whom after round `k`; those of whom the same is said for the first time
        share a line.
        """
        new: dict[str, list[str]] = {}
        for who, what in remarks:
            if len(self.lines) < MOST and self._is_news(who, what):
                is_last = what in ABSENCES and self._times[who] == MOST_TIMES
                new.setdefault(f"{what}{NO_MORE if is_last else ''}", []).append(who)
        self.lines = [
            *self.lines,
            *(f"round {k}: {', '.join(who)}: {what}" for what, who in new.items()),
        ][:MOST]

    def _is_news(self, who: str, what: str) -> bool:
        """Whether it was not said yet. Who was said to be away is said to be here, and may then be
        away again.
        """
        if what == HERE:
            is_back = who in self._gone
            self._gone.discard(who)
            self._told -= {(who, absence) for absence in ABSENCES if is_back}
            return is_back
        is_new = (who, what) not in self._told
        self._told.add((who, what))
        if is_new and what in ABSENCES:
            self._times[who] += 1
            if self._times[who] < MOST_TIMES:
                self._gone.add(who)
        return is_new and (what not in ABSENCES or self._times[who] <= MOST_TIMES)


def remarks_of(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Who takes no part, is not there, or is slow to reach, and why."""
    for node, refusal in fleet.refusals.items():
        yield node_words(node, refusal.ue), f"takes no part: {refusal.why}"
    is_one_unknown = any(fleet.refusals[node].ue == NOBODY for node in fleet.failing)
    for ue in range(fleet.num_ue):
        if fleet.is_here(ue):
            yield f"UE {ue}", HERE
            if (way := fleet.way(ue)).startswith("messages ("):
                yield f"UE {ue}", f"asked by {way}, so a round takes seconds"
        elif fleet.is_refused(ue):
            continue  # its own line says why
        elif ue in fleet.known:
            yield f"UE {ue}", AWAY
        elif is_one_unknown:
            yield f"UE {ue}", PERHAPS
        else:
            yield f"UE {ue}", ABSENT


def lost_words(lost: Mapping[int, str]) -> str:
    """Why the updates of a round were not used, the UEs of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for ue, why in sorted(lost.items()):
        by_reason.setdefault(why, []).append(f"UE {ue}")
    return "; ".join(f"{', '.join(who)}: {why}" for why, who in by_reason.items())
