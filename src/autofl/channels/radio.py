"""A radio link as an engineer plans it: path loss, line of sight, shadowing, fading and mobility
(docs/radio.md).

    g_i = 10^((G_BS + G_UE - PL_i - L + X_i) / 10) h_i

PL, the line of sight and the shadow X follow from the place of a UE and from the landscape; the
fading h follows from the way it has gone and from the seed of the run.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

import numpy as np

from autofl.channels.base import Timed
from autofl.channels.doppler import SPEED_OF_LIGHT, nakagami_gain, rician_gain
from autofl.channels.field import gaussian_field
from autofl.channels.log_distance import log_distance
from autofl.channels.mobility import Mobility, Place, Still, Track, Waypoint
from autofl.channels.special import nakagami_survival, normal_cdf, rician_survival
from autofl.channels.tr38901 import (
    SCENARIOS,
    Scenario,
    Site,
    check_site,
    los_probability,
    path_loss_db,
    shadowing_deviation_db,
)
from autofl.errors import AutoFLError
from autofl.network import Cell
from autofl.ranges import Checked, Range
from autofl.units import Array, BoolArray, db_to_ratio

APART = 1e3
"""Correlation distances between the shadows with line of sight and those without: one field serves
both.
"""
MOST_LOOKS = 128
"""Most moments at which the fading within an upload is sampled."""
MOST = 1e9
DECIBELS = Range(ge=-300, le=300)
"""Seconds and metres beyond the first are typing errors, gains and losses beyond the second."""
LOOKED_AT_ONCE = 1 << 18
"""Such moments, of all UEs together, that are computed in one call: memory stays small in a large
cell.
"""


class LargeScale(NamedTuple):
    """What the place of a UE decides, arrays of shape (num_ue,)."""

    place: Place
    los: BoolArray
    path_loss_db: Array  # PL
    shadow_db: Array  # X: a gain where positive
    gain: Array  # g_i without fading, antennas and further losses included


@dataclass(frozen=True)
class Radio(Checked, Timed):
    """Gains of a link of 3GPP TR 38.901, or of log-distance with an intercept."""

    scenario: Annotated[
        Literal["umi", "uma", "rma", "inh-mixed", "inh-open", "log-distance"],
        "path loss, line of sight, shadowing",
    ] = "umi"
    carrier: Annotated[float, Range(ge=1e6, le=1e12), "f_c [Hz]"] = 3.5e9
    bs_height: Annotated[float | None, Range(ge=0, le=1e5), "h_BS [m]; default the scenario's"] = (
        None
    )
    ue_height: Annotated[float | None, Range(ge=0, le=1e5), "h_UT [m]; default the scenario's"] = (
        None
    )
    bs_antenna_dbi: Annotated[float, DECIBELS, "gain of the base station's antenna"] = 0.0
    ue_antenna_dbi: Annotated[float, DECIBELS, "gain of a UE's antenna"] = 0.0
    extra_loss_db: Annotated[float, DECIBELS, "walls, bodies, cables"] = 0.0
    indoor: Annotated[
        bool,
        "shadows and fading of indoor UEs, Table 7.5-6, O2I; walls: extra_loss_db",
    ] = False
    line_of_sight: Annotated[Literal["by-place", "always", "never"], "which UEs have one"] = (
        "by-place"
    )
    shadowing_db: Annotated[
        float | None, Range(ge=0, le=MOST), "sigma; default the scenario's; 0: none"
    ] = None
    shadow_distance: Annotated[
        float | None, Range(gt=0, le=MOST), "correlation distance [m]; default the scenario's"
    ] = None
    small_scale: Annotated[
        Literal["standard", "rayleigh", "rician", "nakagami", "none"],
        "fading; standard: Rician with line of sight, else Rayleigh",
    ] = "standard"
    k_factor_db: Annotated[
        float | None, Range(ge=-100, le=30), "Rician K; default the scenario's mean"
    ] = None
    m: Annotated[float, Range(ge=0.5, le=1000), "of Nakagami fading"] = 2.0
    speed: Annotated[
        float,
        Range(ge=0, lt=SPEED_OF_LIGHT),
        "v [m/s] of UEs or, if they are still, of what moves around them",
    ] = 0.83
    upload: Annotated[
        float,
        Range(ge=0, le=MOST),
        "seconds over which the fading of a round is averaged; 0: fading at its start",
    ] = 0.0
    mobility: Annotated[Literal["still", "waypoint", "track"], "how UEs move"] = "still"
    pause: Annotated[float, Range(ge=0, le=MOST), "waypoint: seconds at each point"] = 0.0
    area: Annotated[
        float | None,
        Range(gt=0, le=MOST),
        "waypoint: radius [m] in which UEs move; default the cell's",
    ] = None
    track: Annotated[str | None, "track: .csv or .npz of positions over time"] = None
    estimate_delay: Annotated[
        float, Range(ge=0, le=MOST), "age [s] of the gains the planner knows"
    ] = 0.0
    exponent: Annotated[float, Range(gt=0, le=MOST), "log-distance: n"] = 3.5
    intercept_db: Annotated[
        float | None, DECIBELS, "log-distance: loss at 1 m; default free space"
    ] = None
    building_height: Annotated[float, Range(ge=5, le=50), "rma: average [m]"] = 5.0
    street_width: Annotated[float, Range(ge=5, le=50), "rma: average [m]"] = 20.0
    interval: Annotated[float, Range(gt=0, le=MOST), "seconds between rounds if no clock runs"] = (
        1.0
    )
    landscape: Annotated[
        int,
        Range(ge=0),
        "seed of line of sight, shadows and paths; default the run's",
    ] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_site(self.law, self.site)
        if self.indoor and self.law.indoor is None:
            raise AutoFLError(
                f"channel radio: indoor: {self.law.label} has no column for UEs in buildings"
            )
        if (self.mobility == "track") != (self.track is not None):
            raise AutoFLError('channel radio: mobility = "track" and the file track go together')
        _ = self.ways  # a bad track is reported as soon as it is named

    @cached_property
    def law(self) -> Scenario:
        """The scenario's tables."""
        if self.scenario == "log-distance":
            return log_distance(self.exponent, self.intercept_db)
        return SCENARIOS[self.scenario]

    @cached_property
    def site(self) -> Site:
        bs_height, ue_height = self.law.heights
        return Site(
            carrier=self.carrier,
            bs_height=bs_height if self.bs_height is None else self.bs_height,
            ue_height=ue_height if self.ue_height is None else self.ue_height,
            building_height=self.building_height,
            street_width=self.street_width,
        )

    @cached_property
    def ways(self) -> Mobility:
        """How the UEs move."""
        if self.mobility == "waypoint":
            return Waypoint(self.speed, self.pause, self.area)
        if self.track is not None:
            track = Track(self.track)
            _ = track.table
            return track
        return Still(self.speed)

    @property
    def wavelength(self) -> float:
        """lambda = c / f_c [m]."""
        return SPEED_OF_LIGHT / self.carrier

    @property
    def k_factor(self) -> float:
        """Rician K, plain ratio."""
        return db_to_ratio(self.law.k_factor_db if self.k_factor_db is None else self.k_factor_db)

    def large_scale(self, cell: Cell, time: float = 0.0) -> LargeScale:
        """Places, line of sight, path loss and shadows at this time [s]: the same for all seeds of
        one landscape.
        """
        law = self.law
        site = self.site
        place = self.ways.place(cell, self.landscape, time)
        distance = place.distance
        los = self._line_of_sight(place, distance)
        loss = path_loss_db(law, site, distance, los)
        sigma = self.shadowing_db
        reach = self.shadow_distance
        if self.indoor and law.indoor is not None:
            sigma, reach = (
                own if own is not None else table
                for own, table in zip((sigma, reach), law.indoor, strict=True)
            )
        deviation = (
            shadowing_deviation_db(law, site, distance, los)
            if sigma is None
            else np.full(distance.shape, sigma)
        )
        shadow = np.zeros(distance.shape)
        if self.shadowing_db != 0.0:
            scale = (
                1.0 / np.where(los, *law.shadow_distance)
                if reach is None
                else np.full(distance.shape, 1.0 / reach)
            )
            there = np.where(los, 0.0, APART)
            shadow = deviation * gaussian_field(
                self.landscape, "shadowing", place.x * scale + there, place.y * scale
            )
        level_db = self.bs_antenna_dbi + self.ue_antenna_dbi - self.extra_loss_db - loss + shadow
        return LargeScale(place, los, loss, shadow, np.exp(math.log(10.0) / 10.0 * level_db))

    def gain_at(self, cell: Cell, seed: int, time: float) -> Array:
        """g_i at this time [s] of a run.

        Note:
            With `upload` the gain is the one whose rate at P_max is the mean rate over that many
            seconds, log(1 + a g) = mean of log(1 + a g(t)), a = P_max / (N0 B); path loss and
            shadow are those at the beginning.
        """
        there = self.large_scale(cell, time)
        if self.small_scale == "none":
            return there.gain
        wavelengths = there.place.way / self.wavelength
        if self.upload == 0.0:
            return there.gain * self._fading(cell, seed, wavelengths, there.los)
        pace = there.place.speed / self.wavelength
        looks = 2 + math.ceil(min(8.0 * self.upload * float(pace.max(initial=0.0)), MOST_LOOKS - 2))
        snr_per_gain = cell.max_power / cell.noise_power
        total = np.zeros(cell.num_ue)
        moments = self.upload * (np.arange(looks) + 0.5) / looks
        at_once = max(1, LOOKED_AT_ONCE // max(1, cell.num_ue))
        for first in range(0, looks, at_once):
            passed = wavelengths + pace * moments[first : first + at_once, None]
            rates = np.log1p(
                snr_per_gain * there.gain * self._fading(cell, seed, passed, there.los)
            )
            for rate in (
                rates
            ):  # one by one, so that the bits do not depend on how many are looked at together
                total += rate
        return np.expm1(total / looks) / snr_per_gain

    def estimate_at(self, cell: Cell, seed: int, gain: Array, time: float) -> Array:
        """The gains of `estimate_delay` seconds ago."""
        if self.estimate_delay == 0.0:
            return gain
        return self.gain_at(cell, seed, max(time - self.estimate_delay, 0.0))

    def survival_at(self, cell: Cell, gain: Array, time: float) -> Array:
        """P(g_i >= gain) over the fading, given the places of the UEs at this time, shape (...,
        num_ue).
        """
        if self.upload > 0.0 and self.small_scale != "none":
            raise AutoFLError(
                "channel radio: the fading averaged over an upload has no law; set upload = 0"
            )
        there = self.large_scale(cell, time)
        ratio = np.asarray(gain) / there.gain
        if self.small_scale == "none":
            return np.where(ratio <= 1.0, 1.0, 0.0)
        if self.small_scale == "nakagami":
            return nakagami_survival(self.m, ratio)
        scattered = np.exp(-np.maximum(ratio, 0.0))
        direct = self._direct(there.los)
        return (
            np.where(direct, rician_survival(self.k_factor, ratio), scattered)
            if direct.any()
            else scattered
        )

    def _line_of_sight(self, place: Place, distance: Array) -> BoolArray:
        """Cut from a field, so that it stays with a place and neighbours share it (7.6.3.3)."""
        if self.line_of_sight != "by-place" or self.scenario == "log-distance":
            return np.full(distance.shape, self.line_of_sight == "always")
        scale = 1.0 / self.law.los_distance
        field = gaussian_field(self.landscape, "line-of-sight", place.x * scale, place.y * scale)
        return normal_cdf(field) < los_probability(self.law, self.site, distance)

    def _direct(self, los: BoolArray) -> BoolArray:
        """Whose fading has a direct path."""
        if self.small_scale == "standard":
            return np.zeros(los.shape, bool) if self.indoor else los
        return np.full(los.shape, self.small_scale == "rician")

    def _fading(self, cell: Cell, seed: int, wavelengths: Array, los: BoolArray) -> Array:
        """h_i of mean 1 after so many wavelengths."""
        if self.small_scale == "nakagami":
            return nakagami_gain(seed, cell.ue, wavelengths, self.m)
        return rician_gain(
            seed, cell.ue, wavelengths, np.where(self._direct(los), self.k_factor, 0.0)
        )
