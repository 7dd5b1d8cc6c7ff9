"""An output against what a reference gives, in units in the last place: no golden and no statistics.

``ulp_bounds`` are how far apart they may be, ``output_fault`` is where they are farther.
"""
