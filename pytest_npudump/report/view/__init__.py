"""What pages, plots and notebooks show of a session, as data: made once, put into words by each medium.

``overview`` is the whole and one test of it, ``tensor_views`` a comparison's tensors in order of execution,
``strip_columns`` the same in few columns, ``neighbourhood`` the graph around a source, ``elements`` what the
second run showed of a tensor.
"""
