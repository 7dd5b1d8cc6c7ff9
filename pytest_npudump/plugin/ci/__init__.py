"""What a session does for the service that runs it: once, at its end, where the session reports.

``expected_tests`` fails a session in which tests are missing, ``summaries`` writes what GitHub, GitLab and
others show, ``artifacts`` gathers what is to be kept of failing tests, of which
``artifact_files`` knows where it lies and what there is room for.
"""
