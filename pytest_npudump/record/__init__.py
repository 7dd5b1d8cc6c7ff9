"""Facts of one test's tensors, for a golden, a saved run and a dump alike, and their text.

``record`` is that, and knows no YAML. ``text`` is a golden file, to be parsed and rendered: one line for each
tensor, and what is told above and below these lines. ``rows`` are the lines of statistics, read many at once,
told apart by their keys, with when they changed, their projections and their places in a store; ``noise`` is
the column of what does not repeat, and the bounds that it gives; ``model_lines`` tell models that changed.

``edges`` are what feeds each operator, and their text in a golden.

``run_folder`` is what runs of a test leave as files, and where.
"""
