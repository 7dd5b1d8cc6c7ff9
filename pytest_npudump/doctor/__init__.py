"""What is installed on this machine, which runtimes work, and whether a dump can be written here.

``checks`` looks at everything, ``machine`` is what it sees and says; ``pytest_config`` reads for pytest.
"""
