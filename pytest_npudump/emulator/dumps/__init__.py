"""Files of a run under dump.

``recorder`` says which files an execution leaves under a configuration, and ``writer`` makes them;
``exceptions`` are the scene of operators that fail.
"""
