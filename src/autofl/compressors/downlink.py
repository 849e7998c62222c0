"""Size of what the base station sends down, known without PyTorch; `core/downlink.py` says what
is done with it.
"""

from autofl.compressors.base import Compressor

FACTOR_BITS = 32
"""One factor, in single precision, travels with the compressed difference."""


def downlink_bits(
    num_weights: float, compressor: Compressor | None, bits_per_weight: float | None = None
) -> float:
    """Z_down [bit]: 32 for each weight, or what the compressor makes of them and the factor."""
    if compressor is None:
        return 32.0 * num_weights
    return compressor.update_bits(int(num_weights), bits_per_weight) + FACTOR_BITS
