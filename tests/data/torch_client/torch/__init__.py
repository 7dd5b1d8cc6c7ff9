"""A stand-in for torch: as much of it as tells which operators run, and where."""


class Tensor:
    """A tensor; its device is what a subclass says."""
