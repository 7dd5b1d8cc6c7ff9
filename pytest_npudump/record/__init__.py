"""Records: ``record`` is what is known of the tensors of one test, of a golden, a run or a dump alike."""
