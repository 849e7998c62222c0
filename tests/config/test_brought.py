"""What an algorithm brings along, and what is said where it does not."""

import pytest

from autofl.config import dump_said, dump_settings, load_settings, parse_settings
from autofl.config.arms import arm_names


def test_an_algorithm_brings_its_settings_unless_others_are_set():
    brought = load_settings(overrides=["arm=autofl-j"]).resolved()
    assert brought.compressor.name == "entropy"
    assert brought.learning.split == [0.1, 0.8, 0.1]
    kept = load_settings(
        overrides=["arm=autofl-j", "compressor.name=quantise", "learning.guard=0.5"]
    ).resolved()
    assert (kept.compressor.name, kept.learning.guard, kept.learning.lr_decay) == (
        "quantise",
        0.5,
        "auto",
    )
    assert load_settings(overrides=["arm=autofl"]).resolved().compressor.name == "none"


def test_a_joint_arm_brings_a_downlink_with_open_bits_where_sending_down_takes_time():
    def settings(*overrides, arm="autofl-j"):
        return load_settings(overrides=[f"arm={arm}", *overrides]).resolved()

    costly = "cell.downlink_power=1.0"
    for arm in ("autofl-j", "fedavg-j"):
        made = settings(costly, arm=arm)
        assert (made.downlink.name, made.downlink.given, made.decides_downlink) == (
            "nearest",
            {},
            True,
        )
        assert (
            parse_settings(made.table()).resolved().decides_downlink
        )  # what is written is read as the same
    for fixed in (
        settings(),
        settings(costly, arm="autofl"),
        settings(costly, "planner.name=fixed"),
        settings(costly, "downlink.name=none"),
        settings(costly, "downlink.name=entropy"),
        settings(costly, "downlink.name=nearest", "downlink.bits=2.0"),
        settings(costly, "downlink.name=quantise", "downlink.bits=4"),
    ):
        assert not fixed.decides_downlink
    assert settings(costly, "downlink.name=entropy").downlink.given == {"bits": 1.0}


def test_what_is_foregone_is_told(tmp_path):
    assert load_settings(overrides=["arm=autofl-j"]).foregone() == []
    assert load_settings().foregone() == []
    file = tmp_path / "config.toml"
    file.write_text(
        dump_settings(load_settings().resolved()), encoding="utf-8"
    )  # names its compressor: none
    other = load_settings(file, ["arm=autofl-j"])
    assert other.foregone() == [
        "compressor.name = none instead of entropy",
        "learning.inner_lr = 0.03 instead of auto",
        "learning.outer_lr = 0.07 instead of auto",
    ]


@pytest.mark.parametrize(
    "given", [[], ["compressor.name=none"], ["learning.lr_decay=0.5"], ["compressor.name=ternary"]]
)
def test_the_settings_of_a_comparison_read_back_give_every_algorithm_what_it_brings(
    tmp_path, given
):
    settings, file = load_settings(overrides=given), tmp_path / "config.toml"
    file.write_text(dump_said(settings), encoding="utf-8")
    again = load_settings(file)
    for name in arm_names():
        one, two = (each.with_arm(name).resolved() for each in (settings, again))
        assert dump_settings(one) == dump_settings(two)
