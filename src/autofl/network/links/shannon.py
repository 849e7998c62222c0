"""Shannon's capacity, the paper's rate, Eq. (9)."""

from dataclasses import dataclass

from autofl.network.links.base import SHANNON, Law


@dataclass(frozen=True)
class Shannon:
    """r = B log2(1 + xi): no code is better, and nothing limits it at high SNR. Decodable from phi
    on.
    """

    def law(self) -> Law:
        return SHANNON
