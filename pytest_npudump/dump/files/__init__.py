"""The file formats of a dump, a module each; every reader raises ``FormatError`` with the file and the byte.

Tensors: ``container`` and ``npy``; ``plain``, files of their own, those of torch by ``pt``. Statistics:
``operator_csv`` of one operator (ACL dump), ``step_csv`` of a step (``statistic.csv``). Both: ``msprobe``. No
tensors of the model: ``overflow`` records and ``core`` files. What other packages read: ``entry_point``.
Beside them: ``formats``, the table of all.
"""
