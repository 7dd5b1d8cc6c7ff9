"""``scene="overflow"``: ``judge``, and the ``findings`` of overflow records."""
