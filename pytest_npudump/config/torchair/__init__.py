"""TorchAir's ``dump_config``, which fails late or not at all: judged and filled before a graph is compiled.

``checker`` judges the values of its options, ``dump_config`` fills a real one; ``graph_dump`` asks for the
graphs besides.
"""
