"""A failing operator as a folder that stands by itself: a model, its inputs, and a test that fails.

``failure`` is what a report knows of it, ``operands`` the operator with its arrays and what they are held
against. ``failing_piece`` is what is reproduced, ``written_files`` its folder, with the words of
``test_file`` and ``readme``; ``golden_excerpt`` is the golden's say, ``model_piece`` a part of the model,
``drawn`` are values in place of private ones.
``trial`` runs the test, ``reduction`` looks for the smallest piece of a model that still fails; ``make`` is
all of it in order. A call of torch has a ``call_folder`` instead, with the words of ``call_readme`` and
``call_script``, a program that needs nothing of this package.
"""
