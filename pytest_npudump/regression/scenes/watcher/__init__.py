"""``scene="watcher"``: ``judge``, and the ``changes`` between two snapshots of an output."""
