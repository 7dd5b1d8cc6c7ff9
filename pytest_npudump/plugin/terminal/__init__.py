"""What the plugin prints in a session, where pytest prints: under xdist in the controller.

``reporter`` is the plugin that does it: failures within a budget and a line at the end; ``session_notes`` is
all that is said once of a session, or fails it; ``progress`` is shown while a large dump is read;
``spoken_failure`` is a failure in another language than English.
"""
