"""Calls of ATen operators, kept while a test runs and recomputed on the CPU afterwards.

``kept_calls`` is the way in: it keeps the calls whose results a dump is going to hold. ``operators`` says
what torch's schemas tell of them, ``aclnn_names`` which of CANN's operators may run in one, ``host_copy``
has their arguments, ``call_copies`` a call with those, and ``recompute`` what these give on the CPU.
``call_files`` are a call that outlives the process, its ``arguments_as_data``.
"""
