"""Charts as SVG and PNG, for whatever shows HTML; their colours are classes and variables of its style sheet.

``strip`` is a run at a glance, ``histogram`` and ``error_map`` are a tensor's elements, ``operator_graph`` is
what feeds a source and what it spreads to; ``colours`` are what all media share. ``svg_files`` are charts for
themselves.
"""
