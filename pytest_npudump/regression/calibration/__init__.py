"""How far a healthy test strays: a ``series`` of runs, what its ``members`` vary, ``verdict_of_members``.

``held_out`` is the check that bounds made of some members hold for others.
"""
