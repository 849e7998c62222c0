"""The paper, reproduced: recipes of its figures, its claims with verdicts, the page that shows
them.
"""
