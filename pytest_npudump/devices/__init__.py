"""NPUs of this machine: which there are, how they are, and whose turn it is.

- :mod:`.npu_smi`: what the driver's tool says of them
- :mod:`.inventory`: those that a run may use
- :mod:`.locks`: a file for each of them, which all users of the machine lock
- :mod:`.pool`: turns of one process: as many at a time as a test needs, without a deadlock
"""
