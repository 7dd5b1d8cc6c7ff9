"""``npudump golden``: what golden files hold, and what becomes of them.

``pending`` has the verbs about runs that differ; ``status`` holds files against tests, results and store;
``show`` looks into a file and ``log`` at its history; ``plumbing`` is what git and scripts call.
"""
