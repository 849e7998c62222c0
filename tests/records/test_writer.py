"""What a writer leaves, another one takes up."""

import numpy as np
import pytest

from autofl.core.round import Round
from autofl.records import RunWriter, checkpoints, read_manifest

ABOUT = {"algorithm": "autofl", "seed": 1}


@pytest.mark.parametrize("rounds", [(0,), (0, 0), (0, 1), (0, 1, 2)])
def test_a_run_goes_on_after_any_checkpoint_that_is_there(rounds, tmp_path):
    """Two may be of the same round: one in time, and one when the run was told to end."""
    writer = RunWriter(tmp_path, "seed = 1\n", ABOUT)
    for number, k in enumerate(rounds):
        if number == 0 or k > rounds[number - 1]:
            writer.write(Round(k))
        writer.write_checkpoint({"w": np.full(3, k)}, {"round": k})
    writer.close()
    usable, problems = checkpoints(tmp_path)
    assert (len(usable), problems) == (min(len(rounds), 2), [])
    after = usable[-1].round
    again = RunWriter.go_on(tmp_path, after)
    again.write(Round(after + 1))
    again.write_checkpoint({"w": np.full(3, after + 1)}, {"round": after + 1})
    again.close()
    assert [kept.round for kept in checkpoints(tmp_path)[0]] == [after + 1, after]
    assert read_manifest(tmp_path)["resumed"] == [after]
