"""A run that was told to end in the middle of a round goes on to the bytes it would have had."""

import hashlib
import sys

import pytest

from autofl.config import dump_settings, parse_settings
from autofl.errors import Terminated
from autofl.experiments.build import build_simulation
from autofl.jobs.recording import write_run
from autofl.jobs.run import manifest_of

pytestmark = pytest.mark.slow

SMALL = {
    "cell": {"num_ue": 8},
    "simulation": {"num_selected": 6},
    "stop": {"rounds": 6, "target_accuracy": 1.0},
    "evaluation": {"every": 2, "test_samples": 10},
    "preset": "physical",
}
REMEMBERING = {
    "compressor": {"arm": "fedavg-1", "compressor": {"name": "top-k"}},
    "SCAFFOLD, the history of updates, and a liar's first update": {
        "arm": "scaffold",
        "attack": {"name": "replay", "share": 0.25},
        "checks": {"history": 0.3},
    },
    "personal models, and the model at the UEs": {
        "arm": "ditto",
        "downlink": {"name": "top-k"},
    },
    "the server's moments, and the planner's powers": {
        "arm": "fedopt",
        "planner": {"name": "paper"},
    },
    "the planner's losses": {
        "arm": "fedavg-2",
        "planner": {"name": "adaquantfl"},
        "compressor": {"name": "quantise"},
    },
    "a downlink whose bits are decided": {
        "arm": "autofl-j",
        "cell": {"num_ue": 8, "downlink_power": 0.1, "receive_power": 0.001},
    },
    "places and fading": {
        "arm": "autofl",
        "channel": {"name": "radio", "mobility": "waypoint"},
    },
}
FILES = ("rounds.csv", "ues.csv", "weights.safetensors")
INTERRUPTED_ROUND = 4


class Interrupting:
    """Ends a run as a signal does, at one of the calls of our functions in one round."""

    def __init__(self, at: int | None = None) -> None:
        self.calls, self._at = 0, at

    def __call__(self, record) -> None:
        if record.k == INTERRUPTED_ROUND - 1:
            sys.setprofile(self._count)
        elif record.k == INTERRUPTED_ROUND:
            sys.setprofile(None)

    def _count(self, frame, event, _) -> None:
        ours = "/autofl/" in frame.f_code.co_filename and frame.f_code.co_name != "__del__"
        if event == "call" and ours:
            self.calls += 1
            if self.calls == self._at:
                raise Terminated(15)


@pytest.mark.parametrize("what", REMEMBERING)
def test_a_run_that_is_told_to_end_in_the_middle_of_a_round_goes_on_to_the_same_bytes(
    what, tmp_path
):
    settings = parse_settings({**SMALL, **REMEMBERING[what]}).resolved()
    sim = build_simulation(settings)
    text, about = dump_settings(settings), manifest_of(settings, sim, {})

    def bytes_of(name):
        return {
            file: hashlib.sha256((tmp_path / name / file).read_bytes()).hexdigest()
            for file in FILES
        }

    counted = Interrupting()
    write_run(sim, tmp_path / "whole", text, about, counted)
    other = set()
    for part in (0.3, 0.6, 0.9):
        name = str(part)
        with pytest.raises(Terminated):
            write_run(sim, tmp_path / name, text, about, Interrupting(int(part * counted.calls)))
        made = write_run(sim, tmp_path / name, text, about, resume=True)
        assert made.manifest["resumed"] == [INTERRUPTED_ROUND - 1]
        if bytes_of(name) != bytes_of("whole"):
            other.add(part)
    assert not other
