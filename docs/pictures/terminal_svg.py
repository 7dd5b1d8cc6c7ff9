"""What a terminal shows, as a picture: for the scripts of this folder."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.text import Text

FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def terminal_svg(text: Text, columns: int, title: str, unique_id: str) -> str:
    """Return the SVG of a terminal of so many columns, which loads nothing from elsewhere."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(text)
    svg = console.export_svg(title=title, unique_id=unique_id)
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", FONTS)
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)
