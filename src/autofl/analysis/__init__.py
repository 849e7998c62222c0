"""What a run will do and why: estimates of constants, pilots, forecasts, rounds of the network
alone.
"""
