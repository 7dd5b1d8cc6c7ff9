"""``statistic.csv`` of MindSpore and msprobe: the statistics of a step, to be merged with its tensors."""

from __future__ import annotations

from pytest_npudump.dump.files.format import Format

FORMAT = Format("step_csv", file_name="statistic.csv", part="statistics")
