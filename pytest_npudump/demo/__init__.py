"""``npudump demo``: the main job on a real model, on a machine without an NPU."""
