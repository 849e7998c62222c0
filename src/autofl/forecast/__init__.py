"""Rounds and time before training: who is heard, pilots and their fit, forecasts, choices."""
