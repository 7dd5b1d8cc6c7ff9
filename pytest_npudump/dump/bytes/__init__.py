"""The bytes of files: mapped (``rawfile``), whole (``textfile``), or in ``pieces`` and ``chunks``."""
