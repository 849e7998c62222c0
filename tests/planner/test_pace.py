"""The planner's pace, by default, is what the pilots of the package say."""

import numpy as np
import pytest

import autofl
from autofl.forecast.pilot_fit import Pilots
from autofl.planner.pace import Pace


def test_the_default_pace_is_the_fit_of_the_shipped_pilots():
    settings = autofl.load_settings(overrides=["arm=autofl-j", "data.name=mnist"]).resolved()
    np.testing.assert_allclose(Pace().values, Pilots.read(None).pace(settings, 0.9), rtol=0.005)


@pytest.mark.parametrize("data", ["mnist", "mnist5k"])
def test_pilots_come_with_the_package_for_both_data_sets(data):
    settings = autofl.load_settings(overrides=["arm=autofl-j", f"data.name={data}"]).resolved()
    assert Pilots.read(None).fitted(settings, 0.85).num_pilots == 42
