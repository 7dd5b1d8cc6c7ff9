"""The bytes of files that nobody vouches for, read without a copy or an allocation too many.

Mapped (``rawfile``), whole (``textfile``), in ``chunks`` that fit a cache.
"""
