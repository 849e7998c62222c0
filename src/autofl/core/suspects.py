"""Who may have made a round diverge: the UEs whose updates were far longer than the others'."""

from collections.abc import Sequence

import numpy as np
import torch

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
    length = np.full(len(updates.ue), np.nan)
    is_formed = False
    for rows, changes in updates.each():
        is_formed = True
        table = torch.cat([p.reshape(len(rows), -1) for p in changes.values()], dim=1)
        length[rows] = table.double().norm(dim=1).cpu().numpy()
    if not is_formed:  # a batch of runs forms their averages alone
        return ()
    length = np.where(np.isnan(length), np.inf, length)
    finite = np.sort(length[np.isfinite(length)])
    median = (
        float(finite[(len(finite) - 1) // 2]) if len(finite) else 0.0
    )  # of two the shorter: one may lie
    ratio = np.where(np.isfinite(length), length / median if median > 0.0 else np.inf, np.inf)
    order = [row for row in np.argsort(-ratio, kind="stable").tolist() if ratio[row] > SUSPECT]
    standing_out = len(order) < len(ratio) or len(ratio) == 1
    return tuple((int(updates.ue[row]), float(ratio[row])) for row in order) if standing_out else ()


def suspect_words(suspects: Sequence[tuple[int, float]]) -> str:
    """Suspects for people, the first few."""
    named = [
        f"UE {ue} ({f'{ratio:.3g} times the median length' if np.isfinite(ratio) else 'not finite'})"
        for ue, ratio in suspects[:SHOWN]
    ]
    more = f" and {len(suspects) - SHOWN} more" if len(suspects) > SHOWN else ""
    return f"suspects, by the length of their last updates: {', '.join(named)}{more}"
