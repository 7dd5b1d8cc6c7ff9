"""Saved results of a session: verdicts and statistics, to be judged again and accepted later.

``serialisation`` makes the line of a test and its statistics of a result, and ``folder`` is where both lie.
``rejudge`` judges what was kept; ``acceptance`` is what waits for a decision, and makes a golden of it.
``expected_tests`` says which tests were to be compared and were not. ``session_view`` is what media show of
a session, and ``schema.json`` is what programs may count on.
"""
