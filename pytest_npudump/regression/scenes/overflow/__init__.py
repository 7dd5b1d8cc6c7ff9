"""``scene="overflow"``: ``judge``, and the ``records`` of overflows."""
