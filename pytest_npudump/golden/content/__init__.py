"""What a golden file holds: one line a tensor, and what is told above and below these lines.

``text`` is the whole of it, to be parsed and rendered. ``rows`` are the lines of statistics,
``row_batches`` reads many at once, ``row_lines`` tells them apart by their keys, ``row_stamps`` is when
they changed, ``table_rows`` chooses them from tables; ``noise`` is the column of what does not repeat.
Blocks behind the table are ``projection_rows``, ``edge_lines`` and ``pointer_lines``; ``unwritten_entries``
are outputs that are left out of it.
"""
