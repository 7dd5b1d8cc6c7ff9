"""torch_npu: the ``adapter``, its ``device``, operators by ``dispatch``, and captured ``graphs``."""
