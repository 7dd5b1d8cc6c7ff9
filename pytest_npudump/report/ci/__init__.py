"""A session's results as the services that run tests show them, a module a medium.

``judged`` is what each of them is made of; ``markdown`` is a summary, ``workflow_commands`` are annotations
of GitHub, ``code_quality`` is GitLab's report, ``junit`` what JUnit's properties hold. What they show may
come from a model's file: each module keeps names from being taken for its own syntax.
"""
