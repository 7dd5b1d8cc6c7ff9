"""Examination of this machine: installed packages, working runtimes, and whether a dump can be written.

``checks`` looks at everything and says what it sees; ``pytest_config`` reads for pytest.
"""
