"""The marker ``npu_dump``: its ``arguments``, their ``combinations``, and what they ask of an ``item``."""
