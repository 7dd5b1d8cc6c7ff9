"""Tensors as arrays, whole or in pieces: ``decode`` by type, ``npy`` files, ``layouts`` of the device."""
