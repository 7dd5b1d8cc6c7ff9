"""What is installed on this machine, which runtimes work, and whether a dump can be written here."""
