"""Rate laws: how many bits per second a hertz carries at a given SNR. One small file each; NumPy,
pure.
"""

from autofl.network.links.base import DECODE_SLACK, SHANNON, Law, Link

__all__ = ["DECODE_SLACK", "SHANNON", "Law", "Link"]
