"""A failing operator as a folder that stands by itself: a model or a call, its inputs, and what fails.

``failure`` is what a report and the second run's dump know of it; a ``reproduction`` is written, run and told
the same way for operators of models and calls of torch, these with ``call_script``, a program that needs
nothing of this package.
"""
