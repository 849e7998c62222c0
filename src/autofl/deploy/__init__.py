"""Algorithm 2 between a server and real devices, on Flower: the same loop, planner and client
update as simulated.
"""
