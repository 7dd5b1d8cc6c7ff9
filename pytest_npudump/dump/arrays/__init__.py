"""Tensors as arrays, whole or in pieces: ``decode`` by type, ``layouts`` of the device."""
