"""``npu_dump.check_op``: one operator of a test against a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import OperatorMismatchError, RequestError
from pytest_npudump.regression.scenes.check_op import Question, arrays_of, check_operator
from pytest_npudump.report.scenes import wrong_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from pytest_npudump.regression.session import CaseSession

SCENE = "check_op"


def check(
    test: CaseSession,
    operator: str,
    inputs: Sequence[ArrayLike],
    *,
    reference: Callable[..., Any],
    call: Callable[..., Any] | None,
    **how: Any,
) -> None:
    """Check an operator in a test that is under way; the arguments are those of ``npu_dump.check_op``.

    Raises:
        OperatorMismatchError: it does not give what its reference does, or was not dumped.
        RequestError: what is asked cannot be.
    """
    __tracebackhide__ = True
    scene = test.case.request.scene
    if scene != SCENE:
        raise RequestError(
            f"check_op({operator!r}) needs @pytest.mark.npu_dump(scene={SCENE!r}), and this test has "
            f"scene={scene!r}"
        )
    if call is not None and how["attributes"]:
        raise RequestError(
            f"check_op({operator!r}): attributes are for acl.op, and call runs it in another way"
        )
    if not inputs:
        raise RequestError(f"check_op({operator!r}): expected the operator's inputs as arrays")
    arrays = tuple(
        np.ascontiguousarray(array).reshape(np.shape(array)) for array in arrays_of(inputs, "test")
    )
    question = Question(operator, arrays, reference, call, **how)
    wrong = check_operator(test.case, test.state.attempt, question)
    if wrong is not None:
        raise OperatorMismatchError(wrong_text(wrong))
