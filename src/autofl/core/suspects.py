"""Who may have made a round diverge: the UEs whose updates were far longer than the others'."""

from collections.abc import Sequence

import numpy as np

from autofl.engines import Updates

SUSPECT = 3.0
SHOWN = 5
"""How many times the median an update must be long to make its UE a suspect, and how many suspects
are shown.
"""


def suspects_of(updates: Updates) -> tuple[tuple[int, float], ...]:
    """The UEs whose updates were far longer than the others', and how many times the median, the
    longest first.

    It is asked only once a round has diverged. A long update is no proof: a UE may be led astray by
    others, and where all are long nobody stands out and nobody is named.
    """
    lengths = {row: float(change.double().norm()) for row, change in updates}
    if not lengths:  # a batch of runs forms their averages alone
        return ()
    length = np.nan_to_num(
        [lengths[row] for row in range(len(updates.ue))], nan=np.inf, posinf=np.inf
    )
    finite = np.sort(length[np.isfinite(length)])

    # Of two the shorter one is the median: the other may lie.
    ratio = np.full(len(length), np.inf)
    if len(finite) and (median := finite[(len(finite) - 1) // 2]) > 0.0:
        ratio = length / median

    order = [row for row in np.argsort(-ratio, kind="stable").tolist() if ratio[row] > SUSPECT]
    if len(order) == len(ratio) > 1:
        return ()
    return tuple((int(updates.ue[row]), float(ratio[row])) for row in order)


def suspect_words(suspects: Sequence[tuple[int, float]]) -> str:
    """Suspects for people, the first few."""
    named = [
        f"UE {ue} ({f'{ratio:.3g} times the median length' if np.isfinite(ratio) else 'not finite'})"
        for ue, ratio in suspects[:SHOWN]
    ]
    more = f" and {len(suspects) - SHOWN} more" if len(suspects) > SHOWN else ""
    return f"suspects, by the length of their last updates: {', '.join(named)}{more}"
