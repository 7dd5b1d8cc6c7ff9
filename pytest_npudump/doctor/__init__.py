"""What is installed on this machine, which runtimes work, and whether a dump can be written here.

``checks`` looks at everything and says what it sees; ``pytest_config`` reads for pytest.
"""
