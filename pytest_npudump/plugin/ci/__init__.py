"""What a session does for the service that runs it: once, at its end, where the session reports.

``summaries`` writes what GitHub, GitLab and others show, ``artifacts`` gathers what is to be kept of failing
tests.
"""
