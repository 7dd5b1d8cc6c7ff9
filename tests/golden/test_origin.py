"""Facts of a golden's origin that no runtime tells."""

from __future__ import annotations

import platform

from pytest_npudump.golden.origin import extensions, installed, processor

X86 = "processor: 0\nflags: fpu sse2 avx f16c fma avx2 avx512f avx512_vnni\n\nprocessor: 1\nflags: fpu\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp bf16 i8mm sve\n"


def test_extensions_that_choose_kernels_are_named_on_either_architecture() -> None:
    assert extensions(X86) == "avx+avx2+fma+f16c+avx512f+avx512_vnni"
    assert extensions(ARM) == "asimdhp+asimddp+i8mm+bf16+sve"


def test_a_processor_that_tells_nothing_has_no_extensions() -> None:
    assert extensions("") == ""
    assert extensions("model name : ?\n") == ""


def test_the_machine_is_this_one() -> None:
    assert processor()["machine"] == platform.machine()


def test_a_distribution_that_is_not_installed_is_no_fact() -> None:
    assert installed("no-such-distribution") == {}
    assert set(installed("numpy")) == {"numpy"}
