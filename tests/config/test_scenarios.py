"""The scenarios that come along: each can be planned, says where its numbers are from, and lies
below a user's own.
"""

import re

import pytest

from autofl.config import dump_settings, load_settings
from autofl.config.scenarios import FOLDER, scenario_line, scenario_names
from autofl.errors import AutoFLError
from autofl.experiments.cell import plan
from autofl.forecast.choose import Effort, choose

NAMES = [
    "paper",
    "factory-hall",
    "narrowband-sensors",
    "rural-macro",
    "uma-phones",
    "umi-phones",
    "vehicles",
]


def test_there_are_seven_and_the_first_is_the_default():
    assert scenario_names() == NAMES
    assert load_settings(scenario="paper").resolved() == load_settings().resolved()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("planner", ["paper", "joint"])
def test_most_ues_take_part(name, planner):
    made = plan(load_settings(scenario=name, overrides=[f"planner.name={planner}"]))
    # 25 % of these are out of reach, and a short message down makes rounds so short that some more
    # would hold them up.
    assert made.round.plan.feasible.mean() >= (0.6 if name == "uma-phones" else 0.8)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_for_a_target_is_chosen_in_each(name):
    settings = load_settings(scenario=name, overrides=["planner.name=joint", "data.name=mnist"])
    choice = choose(settings, target=0.85, effort=Effort(1, 4))
    assert {0.0, 0.25, 0.5, 1.0} <= {one.thrift for one in choice.candidates}
    assert 0.0 < choice.best.time < float("inf")


@pytest.mark.parametrize("name", NAMES[1:])
def test_each_number_says_where_it_is_from(name):
    lines = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"# {scenario_line(name)}"
    source = (
        r"assumed|T[RS] \d\d\.\d+|ITU-R|the same|thermal noise|Germany|usual|straight ways|\[m\]$"
    )
    unsaid = [
        line
        for line in lines
        if re.match(r"\w+ = [-\d{]", line) and not re.search(f"#.*({source})", line)
    ]
    assert not unsaid


def test_a_scenario_lies_below_the_file_and_the_file_below_overrides(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("[cell]\nmax_power = 0.1\nmax_energy = 5.0\n[channel]\ncarrier = 2e9\n")
    settings = load_settings(path, ["cell.max_energy=6.0"], scenario="umi-phones")
    assert (settings.cell.max_power.value, settings.cell.max_energy.value) == (0.1, 6.0)
    assert settings.cell.noise_figure_db == 5.0
    assert (settings.channel.given["carrier"], settings.channel.given["scenario"]) == (2e9, "umi")
    (tmp_path / "whole.toml").write_text(dump_settings(settings))
    assert load_settings(tmp_path / "whole.toml").resolved() == settings.resolved()


def test_another_part_or_other_places_replace_those_of_a_scenario(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        '[cell]\npositions = [[3, 4], [6, 8]]\n[channel]\nname = "path-loss"\n[link]\nname = "shannon"\n'
    )
    settings = load_settings(path, scenario="vehicles")
    assert settings.cell.count == 2
    assert (settings.channel.given, settings.link.tries) == ({}, 4)
    settings = load_settings(None, ["channel.name=path-loss"], scenario="vehicles")
    assert settings.channel.name == "path-loss"


@pytest.mark.parametrize("name", ["umi-phone", "UMI", "../scenarios/paper", ""])
def test_an_unknown_name_is_told_with_the_nearest(name):
    with pytest.raises(AutoFLError, match="is unknown; the nearest is '") as error:
        load_settings(scenario=name)
    assert "\n" not in str(error.value)


def test_what_is_wrong_on_top_of_a_scenario_names_both(tmp_path):
    (tmp_path / "own.toml").write_text("[cell]\nmax_powr = 1\n")
    with pytest.raises(
        AutoFLError, match=r"^scenario vehicles and .*own\.toml: cell\.max_powr: unknown key"
    ):
        load_settings(tmp_path / "own.toml", scenario="vehicles")
