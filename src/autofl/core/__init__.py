"""Algorithm 2, written once: a round of the network, the loop around it, and the world where it runs.

`round`, `horizon` and `arm` need NumPy alone, so planning imports this package without PyTorch.
"""
