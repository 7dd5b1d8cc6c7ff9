"""MindSpore's data_dump.json: written from a request (``data_dump``), and judged by its ``parser``."""
