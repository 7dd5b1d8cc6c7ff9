"""Files: replaced whole (``atomic``), locked, read only where regular, and YAML that nobody vouches for."""
