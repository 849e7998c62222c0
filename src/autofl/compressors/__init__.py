"""Compressors: what becomes of an update between client and server."""

from autofl.compressors.base import Compressor, Randomness, Sent

__all__ = ["Compressor", "Randomness", "Sent"]
