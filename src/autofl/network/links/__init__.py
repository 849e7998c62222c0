"""Rate laws: how many bits a second a hertz carries at an SNR. One small file for each; NumPy, pure."""

from autofl.network.links.base import DECODE_SLACK, SHANNON, Law, Link

__all__ = ["DECODE_SLACK", "SHANNON", "Law", "Link"]
