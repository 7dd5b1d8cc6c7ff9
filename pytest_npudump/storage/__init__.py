"""Files that survive whatever is killed, and content that nobody vouches for.

``atomic`` replaces a file whole, ``regular_file`` refuses what is none, ``mailbox`` carries messages between
processes, ``safeyaml`` reads YAML without its surprises.
"""
