"""Recipes: the settings the paper states, and figures that share runs."""

from dataclasses import replace

import pytest

from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_planner
from autofl.planner import FixedPlanner, PaperPlanner
from autofl_paper.paper import FIGURES
from autofl_paper.recipes import (
    CIFAR_READINGS,
    FIGURE_STUDIES,
    READINGS,
    SCALES,
    SENSITIVITY,
    STUDIES,
    studies_of,
)
from autofl_paper.study import jobs_of, with_seeds

QUICK = SCALES["quick"]


@pytest.fixture(autouse=True)
def every_data_set_is_here(monkeypatch):
    monkeypatch.setattr("autofl_paper.study.find", lambda name: name)


def settings_of(study, scale=QUICK):
    return {
        (arm.name, arm.x): load_settings(overrides=arm.overrides).resolved()
        for arm in STUDIES[study](scale)
    }


def test_the_paper_has_fifteen_figures_and_each_has_a_recipe():
    assert list(FIGURES) == [
        f"fig{n}{c}" for n, cs in ((2, "abc"), (3, "ab"), (4, "abcdef"), (5, "abcd")) for c in cs
    ]
    assert {shown.study for shown in FIGURES.values()} | set(SENSITIVITY) == set(STUDIES)
    assert studies_of(["all"]) == list(STUDIES)
    assert studies_of(["fig4e", "fig2b"]) == ["mnist"]


@pytest.mark.parametrize(
    ("study", "data", "partition", "steps"),
    [
        ("mnist-iid", "mnist", "iid", (0.03, 0.07)),
        ("mnist", "mnist", "labels", (0.03, 0.07)),
        ("cifar10", "cifar10", "labels", (0.06, 0.02)),
    ],
)
def test_figures_2_and_4_compare_four_algorithms_with_the_numbers_of_table_1(
    study, data, partition, steps
):
    found = settings_of(study, SCALES["full"])
    assert [name for name, _ in found] == ["AutoFL", "Per-FedAvg", "FedAvg-1", "FedAvg-2"]
    for (name, _), settings in found.items():
        cell = settings.cell
        assert (settings.data.name, settings.data.partition, settings.data.labels) == (
            data,
            partition,
            5,
        )
        assert (settings.learning.inner_lr, settings.learning.outer_lr) == steps
        assert (cell.count, cell.distance.parameters, cell.snr_threshold_db) == (20, (200.0,), 30.0)
        assert (cell.max_energy.value, cell.max_power.value, cell.bandwidth.value) == (
            0.003,
            0.01,
            1e6,
        )
        planner = build_planner(settings)
        planned = name in ("AutoFL", "FedAvg-2")
        assert planner == (PaperPlanner(0.02) if planned else FixedPlanner(5, "max"))
    assert all(arm.num_seeds >= 5 for arm in STUDIES[study](SCALES["full"]))


@pytest.mark.parametrize("study", ["samples-mnist", "samples-cifar10"])
def test_figure_3_varies_d_with_the_power_of_power_computation(study):
    found = settings_of(study, SCALES["full"])
    fixed = [build_planner(settings) for (name, _), settings in found.items() if name != "AutoFL"]
    assert fixed == [FixedPlanner(d, "computed") for d in (5, 10, 20, 30, 40, 60)]
    assert all(
        settings.algorithm == "per-fedavg"
        for (name, _), settings in found.items()
        if name != "AutoFL"
    )


def test_figure_5_varies_the_radius_and_the_labels_alone():
    for (_, radius), settings in settings_of("radius").items():
        assert settings.cell.distance.parameters == (float(radius),)
        assert settings.data.labels == 5
    for (_, labels), settings in settings_of("labels").items():
        assert settings.data.labels == labels
        assert settings.cell.distance.parameters == (200.0,)


def test_figures_share_the_runs_they_have_in_common(tmp_path):
    places = {
        study: {
            (arm.name, arm.x, seed): job.folder
            for (arm, seed), job in jobs_of(STUDIES[study](QUICK), tmp_path, "cpu").items()
        }
        for study in STUDIES
    }
    for arm in ("AutoFL", "Per-FedAvg", "FedAvg-1", "FedAvg-2"):
        shared = places["mnist"][arm, 0, 1]
        assert places["radius"][arm, 200, 1] == places["labels"][arm, 5, 1] == shared
        assert places["radius"][arm, 1000, 1] != shared
    assert places["samples-mnist"]["AutoFL", 0, 1] == places["mnist"]["AutoFL", 0, 1]
    all_places = [place for each in places.values() for place in each.values()]
    assert len(set(all_places)) < len(all_places)


def test_every_reading_changes_something(tmp_path):
    arms = STUDIES["sensitivity"](SCALES["full"]) + STUDIES["sensitivity-cifar10"](SCALES["full"])
    told = {}
    for arm in arms:
        told.setdefault(arm.reading, []).append(arm.overrides)
    assert set(told) == {*READINGS, *CIFAR_READINGS}
    assert len({tuple(overrides) for overrides in told.values()}) == len(told)
    for arm in arms:
        load_settings(overrides=arm.overrides)


def test_a_wrong_name_lists_the_right_ones_and_seeds_have_bounds():
    with pytest.raises(AutoFLError, match="fig9: no such figure; there are fig2a"):
        studies_of(["fig9"])
    assert with_seeds(FIGURE_STUDIES, QUICK, 7).cifar_seeds == 7
    with pytest.raises(AutoFLError, match="--seeds 0"):
        with_seeds(FIGURE_STUDIES, QUICK, 0)


def test_without_mnist_the_quick_scale_takes_mnist_5k_and_the_full_one_refuses(monkeypatch):
    monkeypatch.setattr("autofl_paper.study.find", lambda name: None)
    assert settings_of("mnist")["AutoFL", 0].data.name == "mnist5k"
    with pytest.raises(AutoFLError, match="autofl data fetch mnist"):
        settings_of("mnist", SCALES["full"])


def test_arms_that_do_not_use_what_a_reading_sets_share_the_default_runs(tmp_path):
    full = replace(SCALES["full"], reading_seeds=1, cifar_seeds=1)
    places = {
        (arm.reading, arm.study, arm.name, arm.x): job.folder
        for (arm, _), job in jobs_of(STUDIES["sensitivity"](full), tmp_path, "cpu").items()
    }
    for reading, arm, shared in [
        ("first-order", "FedAvg-1", True),
        ("first-order", "AutoFL", False),
        ("epsilon 0.05", "Per-FedAvg", True),
        ("epsilon 0.05", "FedAvg-2", False),
        ("exact planner", "FedAvg-1", True),
        ("FedAvg steps alpha", "AutoFL", True),
        ("adapted on d", "FedAvg-1", False),
    ]:
        same = places[reading, "mnist", arm, 0] == places["default", "mnist", arm, 0]
        assert same == shared, (reading, arm)
    cifar = {
        (arm.reading, arm.name): job.folder
        for (arm, _), job in jobs_of(STUDIES["sensitivity-cifar10"](full), tmp_path, "cpu").items()
    }
    runs = jobs_of(STUDIES["cifar10"](full), tmp_path, "cpu")
    main = {arm.name: job.folder for (arm, _), job in runs.items()}
    assert all(cifar["default", name] == place for name, place in main.items())
