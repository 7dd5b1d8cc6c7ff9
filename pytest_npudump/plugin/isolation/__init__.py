"""Marked tests in processes of their own: a child pytest for each run of a test, spawned, never forked."""
