"""Constants of the rule by which step sizes are found; docs/step-sizes.md has the measurements. No
PyTorch here.
"""

LONGEST = 0.3
"""Length of a local step in round 1 as a share of the model's; three times as much is too long on
Fashion-MNIST, a third takes four times as many rounds.
"""
DECAY = 1.0
"""So the steps of round k are 1/sqrt(k) as long."""
GUARD = 1.0
"""A meta-gradient never points away from the gradient it corrects."""
INNER_LR = 0.03
"""alpha inside a meta-gradient, whose inner batch holds a sample or two: 0 to 0.03 are equal, 0.1
is slower.
"""
