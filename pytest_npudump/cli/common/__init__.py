"""What the commands share: how work is spread, files are read, results printed, and a command ends."""
