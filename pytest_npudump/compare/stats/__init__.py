"""Statistics against statistics: which tensor is which, and what differs by more than it may.

``tables`` is the way in, ``verdict`` the result. ``order``, ``alignment`` and ``eager_calls`` find the
``pairs``; ``numbers``, ``projection_distances`` and ``digests`` judge them; ``unjudged`` and
``first_divergence`` say what that means, ``measured_bounds`` counts where these decide, ``blind_bounds`` what
they no longer see, ``not_finite`` names tensors without a value to judge, ``allowances`` how far each
statistic may be off, ``shares`` how much of that it is off, ``deviations`` how far it strays between healthy
runs; ``both_sides`` is what golden and run both tell.
"""
