"""What a run under dump leaves.

``recorder`` says which files an execution leaves under a configuration, and ``writer`` makes them;
``exceptions`` are the scene of operators that fail.
"""
