"""How long a test waits for what a quiet machine does in a second or two."""

PATIENCE = 600.0
"""Seconds: far more than the busiest machine needs, so a test that runs into them has found a
program that hangs.
"""
