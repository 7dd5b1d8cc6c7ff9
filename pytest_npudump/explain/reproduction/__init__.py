"""A failing operator as a folder that stands by itself: a model or a call, its inputs, and what fails.

``failure`` is what a report and the second run's dump know of it; a ``reproduction`` is written, run and told
the same way for all. ``pieces`` are of models, of which the smallest one that still fails is looked for.
``calls`` are of torch, with ``call_script``, a program that needs nothing of this package.
"""
