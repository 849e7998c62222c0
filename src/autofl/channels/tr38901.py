"""Path loss, line of sight and shadowing of 3GPP TR 38.901 (clause 7.4): UMi street canyon, UMa,
RMa and InH office.

Distances are in m, losses in dB, as the standard prints them. d_2D is the distance over ground,
d_3D that between the antennas. Below the least distance of a scenario its law is taken at that
distance; beyond the largest there is none.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array, BoolArray

SPEED_OF_LIGHT = 3.0e8
"""c [m/s] of the breakpoint distances, as the standard rounds it (Table 7.4.1-1, note 1)."""
ENVIRONMENT_HEIGHT = 1.0
"""h_E [m] of UMi and UMa. In UMa it may be larger for UEs above 13 m (note 1); here it is 1 m for
them too.
"""


@dataclass(frozen=True)
class Site:
    """What a path loss depends on besides distance."""

    carrier: float  # f_c [Hz]
    bs_height: float  # h_BS [m]
    ue_height: float  # h_UT [m]
    building_height: float = 5.0  # h [m], average; RMa
    street_width: float = 20.0  # W [m], average; RMa

    @property
    def carrier_ghz(self) -> float:
        return self.carrier / 1e9

    def distance_3d(self, distance: Array) -> Array:
        """d_3D = sqrt(d_2D^2 + (h_BS - h_UT)^2), Fig. 7.4.1-1."""
        return np.sqrt(distance * distance + (self.bs_height - self.ue_height) ** 2)


Loss = Callable[[Site, Array, Array], Array]
"""PL [dB] of a site at d_2D and d_3D."""


@dataclass(frozen=True)
class Scenario:
    """A row of Tables 7.4.1-1, 7.4.2-1, 7.5-6 and 7.6.3.1-2; pairs are (line of sight, none)."""

    label: str
    los_loss: Loss
    nlos_loss: Loss  # PL'; the larger of it and the loss with line of sight counts
    los_chance: Callable[[Site, Array], Array]
    shadowing_db: tuple[float, float]  # sigma_SF [dB]
    shadow_distance: tuple[float, float]  # correlation distance of shadowing [m]
    los_distance: float  # correlation distance of the state of line of sight [m]
    k_factor_db: float  # mean of the Rician K [dB], with line of sight
    heights: tuple[float, float]  # h_BS and h_UT [m] unless others are given
    reach: tuple[float, float]  # d_2D [m], least and largest
    carriers: tuple[float, float] = (0.5e9, 100e9)  # f_c [Hz], lowest and highest
    bs_heights: tuple[float, float] = (1.5, 150.0)
    ue_heights: tuple[float, float] = (1.5, 22.5)
    far_shadowing_db: float | None = (
        None  # sigma_SF [dB] with line of sight beyond the breakpoint, if different
    )
    indoor: tuple[float, float] | None = (
        None  # sigma_SF [dB] and its correlation distance [m] of O2I, Table 7.5-6
    )
    nlos_reach: float | None = (
        None  # d_2D [m] up to which the law without line of sight holds, if different
    )
    reach_3d: bool = False  # whether the largest distance is d_3D


def path_loss_db(scenario: Scenario, site: Site, distance: Array, los: BoolArray) -> Array:
    """PL [dB], Table 7.4.1-1: with line of sight PL_LOS, without it max(PL_LOS, PL').

    Args:
        distance: d_2D [m], shape (..., num_ue).
        los: whether there is a line of sight, of the same shape.
    """
    distance = within_reach(scenario, site, distance, los)
    antennas = np.maximum(
        site.distance_3d(distance), 1.0
    )  # InH starts at d_3D = 1 m, the others are beyond it
    clear = scenario.los_loss(site, distance, antennas)
    return np.where(los, clear, np.maximum(clear, scenario.nlos_loss(site, distance, antennas)))


def los_probability(scenario: Scenario, site: Site, distance: Array) -> Array:
    """P(line of sight) at d_2D [m], Table 7.4.2-1."""
    return scenario.los_chance(site, distance)


def shadowing_deviation_db(
    scenario: Scenario, site: Site, distance: Array, los: BoolArray
) -> Array:
    """sigma_SF [dB], Table 7.4.1-1; that of RMa grows beyond the breakpoint."""
    with_los, without = scenario.shadowing_db
    clear = np.full(np.shape(distance), with_los)
    if scenario.far_shadowing_db is not None:
        clear = np.where(distance <= rural_breakpoint(site), with_los, scenario.far_shadowing_db)
    return np.where(los, clear, without)


def within_reach(scenario: Scenario, site: Site, distance: Array, los: BoolArray) -> Array:
    """d_2D, at least the scenario's least; an error beyond the range of its law."""
    least, largest = scenario.reach
    far = float(np.max(site.distance_3d(distance) if scenario.reach_3d else distance, initial=0.0))
    hidden = float(np.max(distance, initial=0.0, where=~np.asarray(los)))
    if far > largest:
        raise AutoFLError(
            f"a UE is {far:g} m from the base station; the path loss of {scenario.label} holds up to {largest:g} m"
        )
    if scenario.nlos_reach is not None and hidden > scenario.nlos_reach:
        raise AutoFLError(
            f"a UE without line of sight is {hidden:g} m from the base station; "
            f"there the path loss of {scenario.label} holds up to {scenario.nlos_reach:g} m"
        )
    return np.maximum(distance, least)


def check_site(scenario: Scenario, site: Site) -> None:
    """Refuse a carrier or a height the standard has no law for."""
    ranges = {
        "carrier": (site.carrier, scenario.carriers, "Hz"),
        "bs_height": (site.bs_height, scenario.bs_heights, "m"),
        "ue_height": (site.ue_height, scenario.ue_heights, "m"),
    }
    for name, (value, (low, high), unit) in ranges.items():
        if not low <= value <= high:
            raise AutoFLError(
                f"{name} = {value:g} {unit}: {scenario.label} holds for {low:g} to {high:g} {unit}"
            )


def breakpoint_distance(site: Site) -> float:
    """d'_BP = 4 h'_BS h'_UT f_c / c [m] of UMi and UMa, h' = h - h_E; note 1."""
    effective = (site.bs_height - ENVIRONMENT_HEIGHT) * (site.ue_height - ENVIRONMENT_HEIGHT)
    return 4.0 * effective * site.carrier / SPEED_OF_LIGHT


def rural_breakpoint(site: Site) -> float:
    """d_BP = 2 pi h_BS h_UT f_c / c [m] of RMa; note 5."""
    return 2.0 * np.pi * site.bs_height * site.ue_height * site.carrier / SPEED_OF_LIGHT


def _two_slopes(intercept: float, slope: float, bend: float) -> Loss:
    """PL_1 = a + b log10 d_3D + 20 log10 f_c up to d'_BP; PL_2 = a + 40 log10 d_3D + 20 log10 f_c -
    e log10(...).
    """

    def loss(site: Site, distance: Array, antennas: Array) -> Array:
        at_one_metre = intercept + 20.0 * np.log10(site.carrier_ghz)
        turn = breakpoint_distance(site)
        log_distance = np.log10(antennas)
        below = bend * np.log10(turn**2 + (site.bs_height - site.ue_height) ** 2)
        near = at_one_metre + slope * log_distance
        return np.where(distance <= turn, near, at_one_metre + 40.0 * log_distance - below)

    return loss


def _one_slope(
    intercept: float, slope: float, carrier_slope: float, height_slope: float = 0.0
) -> Loss:
    """PL = a + b log10 d_3D + e log10 f_c - u (h_UT - 1.5)."""

    def loss(site: Site, distance: Array, antennas: Array) -> Array:
        at_one_metre = (
            intercept
            + carrier_slope * np.log10(site.carrier_ghz)
            - height_slope * (site.ue_height - 1.5)
        )
        return at_one_metre + slope * np.log10(antennas)

    return loss


def _rural_near(site: Site, antennas: Array | float) -> Array:
    """PL_1 of RMa with line of sight."""
    bulk = site.building_height**1.72
    return (
        20.0 * np.log10(40.0 * np.pi * antennas * site.carrier_ghz / 3.0)
        + min(0.03 * bulk, 10.0) * np.log10(antennas)
        - min(0.044 * bulk, 14.77)
        + 0.002 * np.log10(site.building_height) * antennas
    )


def _rural_los(site: Site, distance: Array, antennas: Array) -> Array:
    turn = rural_breakpoint(site)
    far = _rural_near(site, turn) + 40.0 * np.log10(antennas / turn)
    return np.where(distance <= turn, _rural_near(site, antennas), far)


def _rural_nlos(site: Site, distance: Array, antennas: Array) -> Array:
    log_height = np.log10(site.bs_height)
    return (
        161.04
        - 7.1 * np.log10(site.street_width)
        + 7.5 * np.log10(site.building_height)
        - (24.37 - 3.7 * (site.building_height / site.bs_height) ** 2) * log_height
        + (43.42 - 3.1 * log_height) * (np.log10(antennas) - 3.0)
        + 20.0 * np.log10(site.carrier_ghz)
        - (3.2 * np.log10(11.75 * site.ue_height) ** 2 - 4.97)
    )


def _street_chance(decay: float) -> Callable[[Site, Array], Array]:
    """18/d + exp(-d/decay) (1 - 18/d) beyond 18 m; 1 up to there."""

    def chance(site: Site, distance: Array) -> Array:
        share = 18.0 / np.maximum(distance, 18.0)
        return share + np.exp(-distance / decay) * (1.0 - share)

    return chance


def _urban_chance(site: Site, distance: Array) -> Array:
    """That of a street, and more for a UE above 13 m."""
    above = (max(site.ue_height - 13.0, 0.0) / 10.0) ** 1.5
    raised = 1.0 + above * 1.25 * (distance / 100.0) ** 3 * np.exp(-distance / 150.0)
    return np.where(distance <= 18.0, 1.0, _street_chance(63.0)(site, distance) * raised)


def _rural_chance(site: Site, distance: Array) -> Array:
    return np.exp(-np.maximum(distance - 10.0, 0.0) / 1000.0)


def _mixed_office_chance(site: Site, distance: Array) -> Array:
    near = np.exp(-np.maximum(distance - 1.2, 0.0) / 4.7)
    return np.where(distance < 6.5, near, 0.32 * np.exp(-(distance - 6.5) / 32.6))


def _open_office_chance(site: Site, distance: Array) -> Array:
    near = np.exp(-np.maximum(distance - 5.0, 0.0) / 70.8)
    return np.where(distance <= 49.0, near, 0.54 * np.exp(-(distance - 49.0) / 211.7))


def _office(kind: str, chance: Callable[[Site, Array], Array]) -> Scenario:
    return Scenario(
        label=f"InH {kind} office",
        los_loss=_one_slope(32.4, 17.3, 20.0),
        nlos_loss=_one_slope(17.3, 38.3, 24.9),
        los_chance=chance,
        shadowing_db=(3.0, 8.03),
        shadow_distance=(10.0, 6.0),
        los_distance=10.0,
        k_factor_db=7.0,
        heights=(3.0, 1.0),
        reach=(0.0, 150.0),
        bs_heights=(0.5, 50.0),
        ue_heights=(0.1, 50.0),
        reach_3d=True,
    )


SCENARIOS = {
    "umi": Scenario(
        label="UMi street canyon",
        indoor=(7.0, 7.0),
        los_loss=_two_slopes(32.4, 21.0, 9.5),
        nlos_loss=_one_slope(22.4, 35.3, 21.3, 0.3),
        los_chance=_street_chance(36.0),
        shadowing_db=(4.0, 7.82),
        shadow_distance=(10.0, 13.0),
        los_distance=50.0,
        k_factor_db=9.0,
        heights=(10.0, 1.5),
        reach=(10.0, 5e3),
    ),
    "uma": Scenario(
        label="UMa",
        indoor=(7.0, 7.0),
        los_loss=_two_slopes(28.0, 22.0, 9.0),
        nlos_loss=_one_slope(13.54, 39.08, 20.0, 0.6),
        los_chance=_urban_chance,
        shadowing_db=(4.0, 6.0),
        shadow_distance=(37.0, 50.0),
        los_distance=50.0,
        k_factor_db=9.0,
        heights=(25.0, 1.5),
        reach=(10.0, 5e3),
    ),
    "rma": Scenario(
        label="RMa",
        los_loss=_rural_los,
        nlos_loss=_rural_nlos,
        nlos_reach=5e3,
        indoor=(8.0, 120.0),
        los_chance=_rural_chance,
        shadowing_db=(4.0, 8.0),
        far_shadowing_db=6.0,
        shadow_distance=(37.0, 120.0),
        los_distance=60.0,
        k_factor_db=7.0,
        heights=(35.0, 1.5),
        reach=(10.0, 10e3),
        carriers=(0.5e9, 30e9),
        bs_heights=(10.0, 150.0),
        ue_heights=(1.0, 10.0),
    ),
    "inh-mixed": _office("mixed", _mixed_office_chance),
    "inh-open": _office("open", _open_office_chance),
}
