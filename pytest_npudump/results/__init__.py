"""What a session leaves of its tests: verdicts and statistics, to be judged again and approved later.

``entry`` is the line of one test, ``kept`` makes it of a result, ``folder`` is where lines and records lie.
``rejudge`` judges what was kept, by ``terms``; ``pending_run`` is what waits for a decision, ``acceptance``
makes a golden of it, and ``schema.json`` is what programs may count on.
"""
