"""Tensors as arrays: ``decode`` for the values of a payload, ``layouts`` for the host's order of axes."""
