"""Where UEs are: against a walk in small steps, and from files."""

import math

import numpy as np
import pytest

from autofl.channels.mobility import Still, Track, Waypoint
from autofl.errors import AutoFLError
from autofl.network import Cell
from autofl.rng import ue_uniforms

CELL = Cell.disc(num_ue=6, radius=100.0, seed=3)


def slow_walk(cell, ue, seed, speed, pause, radius, time):
    """One UE, leg by leg: its place and the way it has gone."""
    x, y = (
        cell.distance[ue] * math.cos(cell.angle[ue]),
        cell.distance[ue] * math.sin(cell.angle[ue]),
    )
    way, leg = 0.0, 0
    while True:
        u, v = ue_uniforms(seed, "waypoint", (leg,), np.array([ue]), 2)[0]
        goal = (
            radius * math.sqrt(u) * math.cos(2 * math.pi * v),
            radius * math.sqrt(u) * math.sin(2 * math.pi * v),
        )
        length = math.dist((x, y), goal)
        if time * speed <= length:
            share = time * speed / length
            return x + share * (goal[0] - x), y + share * (goal[1] - y), way + time * speed
        time -= length / speed
        way += length
        x, y = goal
        if time <= pause:
            return x, y, way
        time -= pause
        leg += 1


@pytest.mark.parametrize("time", [0.0, 3.0, 50.0, 333.3, 2000.0])
@pytest.mark.parametrize("pause", [0.0, 20.0])
def test_random_waypoints_are_those_of_a_slow_walk(time, pause):
    place = Waypoint(1.5, pause, 100.0).place(CELL, 7, time)
    expected = np.array([slow_walk(CELL, ue, 7, 1.5, pause, 100.0, time) for ue in range(6)])
    np.testing.assert_allclose(
        np.stack(place[:3], axis=-1), expected, atol=1e-3
    )  # goals are single precision


def test_ues_start_in_their_places_stay_inside_and_never_jump():
    ways = Waypoint(10.0)
    np.testing.assert_allclose(np.stack(ways.place(CELL, 1, 0.0)[:2]), CELL.position)
    before = ways.place(CELL, 1, 0.0)
    for time in np.arange(0.5, 120.0, 0.5):
        place = ways.place(CELL, 1, float(time))
        assert (np.hypot(place.x - before.x, place.y - before.y) <= 5.0 + 1e-9).all()
        assert (place.distance <= CELL.distance.max() + 1e-9).all()
        np.testing.assert_allclose(place.way, 10.0 * time)
        before = place
    assert (ways.place(CELL, 2, 60.0).x != ways.place(CELL, 1, 60.0).x).all()


def test_who_is_still_only_fades():
    place = Still(2.0).place(CELL, 1, 30.0)
    np.testing.assert_allclose(place.distance, CELL.distance)
    np.testing.assert_array_equal(place.way, 60.0)


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_a_track_is_followed(tmp_path, kind):
    time, path = np.array([0.0, 10.0, 20.0]), tmp_path / f"track.{kind}"
    position = np.array(
        [[[0.0, 0.0], [5.0, 5.0]], [[30.0, 40.0], [5.0, 5.0]], [[30.0, 0.0], [5.0, 6.0]]]
    )
    if kind == "npz":
        np.savez(path, time=time, position=position)
    else:
        np.savetxt(
            path,
            np.column_stack([time, position.reshape(3, 4)]),
            delimiter=",",
            header="time,x0,y0,x1,y1",
            comments="",
        )
    track, cell = Track(str(path)), Cell(distance=np.ones(2))
    for moment, x, y, way, speed in (
        (0.0, [0, 5], [0, 5], [0, 0], [5, 0]),
        (5.0, [15, 5], [20, 5], [25, 0], [5, 0]),
        (15.0, [30, 5], [20, 5.5], [70, 0.5], [4, 0.1]),
        (99.0, [30, 5], [0, 6], [90, 1], [0, 0]),
    ):
        for ours, expected in zip(track.place(cell, 1, moment), (x, y, way, speed), strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-12)
    with pytest.raises(AutoFLError, match="tracks of 2 UEs; the cell has 3"):
        track.place(Cell(distance=np.ones(3)), 1, 0.0)


def test_a_track_without_times_is_refused(tmp_path):
    np.savetxt(tmp_path / "track.csv", np.ones((3, 4)), delimiter=",")
    with pytest.raises(AutoFLError, match="a track has times"):
        _ = Track(str(tmp_path / "track.csv")).table


def test_ways_that_are_gone_on_with_have_the_bits_of_ways_from_the_start():
    ways = Waypoint(5.0, 2.0, 80.0)
    for time in (40.0, 39.9, 120.0, 119.9, 3.0, 500.0, 499.9, 120.0):
        for ours, fresh in zip(
            ways.place(CELL, 4, time), Waypoint(5.0, 2.0, 80.0).place(CELL, 4, time), strict=True
        ):
            np.testing.assert_array_equal(ours, fresh)
    other = Cell.disc(num_ue=6, radius=100.0, seed=8)
    np.testing.assert_array_equal(
        ways.place(other, 4, 120.0).x, Waypoint(5.0, 2.0, 80.0).place(other, 4, 120.0).x
    )


def test_places_do_not_depend_on_the_times_asked_for_before():
    ways = Waypoint(1.5, 0.0, 100.0)
    for time in (400.0, 401.0, 402.0, 250.0, 90.0, 300.0, 90.0):
        there, fresh = ways.place(CELL, 7, time), Waypoint(1.5, 0.0, 100.0).place(CELL, 7, time)
        for now_kept, afresh in zip(there, fresh, strict=True):
            np.testing.assert_array_equal(now_kept, afresh)


def test_a_track_in_three_dimensions_is_refused(tmp_path):
    file = tmp_path / "high.npz"
    np.savez(file, time=np.array([0.0, 1.0]), position=np.ones((2, 4, 3)))
    with pytest.raises(AutoFLError, match="x and y of each UE"):
        _ = Track(str(file)).table
