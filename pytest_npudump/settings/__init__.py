"""What the options say.

``option_table`` is the one table of them, ``option_values`` reads what a user typed, and ``run_settings``
is what holds in one run. Nothing here imports a room.
"""

from pytest_npudump.settings.options import (
    CI_VARIABLES,
    Settings,
    ci_variable,
    default_settings,
    settings_from,
)

__all__ = ["CI_VARIABLES", "Settings", "ci_variable", "default_settings", "settings_from"]
