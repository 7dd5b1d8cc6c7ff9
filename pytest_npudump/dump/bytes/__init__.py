"""The bytes of files: mapped (``rawfile``), whole (``textfile``), in ``chunks``; ``buffers`` to work in."""
