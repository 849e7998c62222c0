"""Algorithm 2: one round of the network, and the loop, wherever it takes place.

`rounds.round` and `rounds.horizon` are NumPy only; the loop, `rounds.loop`, needs PyTorch.
"""
