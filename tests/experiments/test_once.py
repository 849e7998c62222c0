"""One run resolves its settings once, and makes every part once."""

from collections import Counter

from autofl.config import Settings, load_settings
from autofl.jobs.run import run
from autofl.registry import Part


def test_a_run_resolves_its_settings_once_and_makes_each_part_once(tmp_path, monkeypatch):
    settings = load_settings(
        overrides=[
            "arm=autofl-j",
            "cell.downlink_power=1.0",
            "attack.name=zeros",
            "stop.rounds=1",
            "evaluation.test_samples=5",
        ]
    )
    calls = Counter()
    resolved, build = Settings.resolved, Part.build

    def count_resolved(self):
        calls["resolved"] += 1
        return resolved(self)

    def count_built(self, *given):
        calls[f"{self.kind} {self.name}"] += 1
        return build(self, *given)

    monkeypatch.setattr(Settings, "resolved", count_resolved)
    monkeypatch.setattr(Part, "build", count_built)
    run(settings, tmp_path / "run")
    made = ("model mlp", "algorithm per-fedavg", "compressor entropy", "compressor nearest")
    others = ("planner joint", "channel path-loss", "link shannon", "selection uniform")
    own = ("aggregator mean", "attack zeros", "data mnist5k", "partition labels")
    assert calls == dict.fromkeys(("resolved", *made, *others, *own), 1)
