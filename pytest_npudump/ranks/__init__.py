"""Distributed runs: which rank this process is, and what the ranks of a node tell each other."""
