"""What a session leaves of its tests: verdicts and statistics, to be judged again and approved later.

``entry`` is the line of one test, ``kept`` makes it of a result, ``record_text`` its statistics; ``folder``
is where both lie, ``refusals`` and ``provenance`` are what an approval asks of them, ``pending_tensors``
what it keeps with a golden. ``rejudge`` judges what was kept, by ``terms``; ``pending_run`` is what waits
for a decision, ``acceptance`` makes a golden of it with ``approved_noise`` and ``approved_tensors``.
``expected_tests`` says which tests were to be compared and were not. ``result_pairs`` compares two folders.
``session_view`` is what ``session_page`` writes as HTML, and ``schema.json`` is what programs may count on.
"""
