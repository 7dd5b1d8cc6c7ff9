"""Public: tensors for operator tests with hypothesis, full of the values and shapes that break NPUs.

For ``npu_dump.check_op``; needs the extra ``testing``, which is asked for by the first call::

    from hypothesis import given
    from pytest_npudump import strategies

    @strategies.settings(max_examples=50)
    @given(strategies.tensors("float16"))
    @pytest.mark.npu_dump(scene="check_op")
    def test_relu(npu_dump, x):
        npu_dump.check_op("Relu", x, reference=lambda x: numpy.maximum(x, 0))

``tensor_strategies`` makes them, in shapes with edges of their own, and has the settings of a test that runs
on a device.
"""

from pytest_npudump.strategies.tensor_strategies import alike, matrices, settings, shapes, tensors, values

__all__ = ["alike", "matrices", "settings", "shapes", "tensors", "values"]
