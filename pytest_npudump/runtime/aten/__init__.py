"""Calls of ATen operators, kept while a test runs and recomputed on the CPU afterwards.

``kept_calls`` is the way in: it keeps the calls whose results a dump is going to hold, also in files, which
outlive the process. ``recompute`` says what torch's schemas tell of them, which of CANN's operators may run
in one, and what they give on the CPU.
"""
