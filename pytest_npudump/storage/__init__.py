"""Files that survive whatever is killed, and content that nobody vouches for.

``atomic`` replaces a file whole, refuses what is no regular file, and carries messages between processes;
``safeyaml`` reads YAML without its surprises.
"""
