"""The paper, reproduced: recipes of its figures, its claims with verdicts, the pages that show them,
and its theory evaluated for a case. `autofl` knows nothing of this package; its commands are entry
points.
"""
