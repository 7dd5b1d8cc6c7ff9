"""``scene="exception"``: ``judge``, where its ``dumps`` lie (``places``), and what they say."""
