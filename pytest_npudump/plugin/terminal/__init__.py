"""What the plugin prints in a session, where pytest prints: under xdist in the controller.

``reporter`` is the plugin that does it: failures within a budget, ``session_notes`` once each, and a line at
the end; ``progress`` is shown while a large dump is read, ``session_report`` writes the page of a session.
``spoken_failure`` is one in another language than English. ``staleness`` is looked for where a session is to
fail for it, ``session_rules`` where there is a file of tolerances; ``open_runs`` names those to decide about,
and ``session_problems`` why a session does not pass whatever its tests say.
"""
