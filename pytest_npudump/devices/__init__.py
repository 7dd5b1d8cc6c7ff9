"""NPUs of this machine: the ``inventory`` that a run may use, and the ``pool`` in which tests have turns."""
