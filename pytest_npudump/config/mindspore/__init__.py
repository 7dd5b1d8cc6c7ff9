"""MindSpore's data_dump.json: written from a request, and judged as MindSpore's own parser does.

``data_dump`` writes it, with ``data_dump_kernels`` for the layers. ``parser`` reads it in MindSpore's order:
``common`` settings, ``e2e`` or not, ``statistics``; ``parser_state`` is what it has read so far,
``warnings`` what it takes without effect.
"""
