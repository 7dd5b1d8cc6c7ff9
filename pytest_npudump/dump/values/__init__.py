"""Facts about the values of a dump that no file of it says.

``dtypes`` and ``formats`` are CANN's numbers and names of types and layouts, ``small_floats`` values that
numpy has no type for, ``host_values`` what CANN's host tool garbles.
"""
