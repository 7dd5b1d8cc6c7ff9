"""A failing operator as a folder that stands by itself: a model or a call, its inputs, and what fails.

``failure`` is what a report knows of it; a ``reproduction`` is written, run and told the same way for all.
``pieces`` are of models, of the ``operands`` that the second run dumped, ``reduction`` looks for the smallest
one that still fails. ``calls`` are of torch, with ``call_script``, a program that needs nothing of this
package. ``drawn`` are values in place of private ones.
"""
