"""`autofl explore`: a page on this machine on which cells are planned, and runs watched and
compared.
"""
