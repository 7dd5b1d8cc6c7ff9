"""Public: two dumps compared from Python, as an object that a notebook shows as charts and a table."""
