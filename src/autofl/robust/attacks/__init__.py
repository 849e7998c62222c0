"""Attacks: what UEs that lie send instead of their updates, for simulations that measure what a
rule withstands.
"""

from autofl.robust.attacks.base import Attack, Attacked

__all__ = ["Attack", "Attacked"]
