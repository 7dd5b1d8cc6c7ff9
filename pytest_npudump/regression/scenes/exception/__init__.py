"""``scene="exception"``: ``judge``, where its ``dumps`` lie (``dump_paths``), and what they say."""
