"""Goldens as people and tools write them, without the package."""

from __future__ import annotations

COLUMNS = "tensor dtype shape max min avg l2norm nan -inf +inf"


def golden_text(
    values: dict[str, float],
    producer: str,
    *,
    head: str = "",
    cells: dict[str, str] | None = None,
    blocks: str = "",
    changed: dict[str, str] | None = None,
) -> str:
    """The text of a golden with one tensor a layer; ``cells`` are those of the column ``noise``."""
    noise, days = "" if cells is None else " noise", changed or {}
    rows = "".join(
        f"  {layer} float32 2 {value} {value} {value} - 0 0 0"
        f"{'' if cells is None else ' ' + cells.get(layer, '-')}"
        f"{' # ' * (layer in days)}{days.get(layer, '')}\n"
        for layer, value in values.items()
    )
    facts = f"test: test_a.py::test_a\nproducer: {{{producer}}}\n"
    return f"npudump-golden: 1\n{facts}{head}columns: {COLUMNS}{noise}\ntensors: |\n{rows}{blocks}"
