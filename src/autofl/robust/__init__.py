"""What the server believes: how updates are combined, how they are checked, and what liars send.

`aggregators` combine what arrived; `checks` leaves out, shortens and takes back, by `screen`
(lengths), `evenness`, `history` and `undo`; `attacks` are for simulations that measure all that.
"""
