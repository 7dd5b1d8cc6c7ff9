"""Files that survive kills, and content that nobody vouches for.

``atomic`` replaces a file whole and carries messages between processes, ``archive`` keeps a folder as one
file, ``regular_file`` refuses what is none, ``safeyaml`` reads YAML without its surprises.
"""
