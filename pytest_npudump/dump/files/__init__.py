"""The file formats of a dump, a module each; every one raises ``FormatError`` with the file and the byte.

Tensors: ``container``, ``tlv`` (the older layout), ``npy``, ``core``. Statistics: ``stats_csv`` of one
operator, ``stats_columns`` of many of these at once, ``statistic_csv`` of a step. Beside them: ``mapping`` of
long names, ``overflow`` records. ``registry`` has the formats that other packages offer.
"""
