"""From the files of a dump to records. Knows nothing of pytest."""
