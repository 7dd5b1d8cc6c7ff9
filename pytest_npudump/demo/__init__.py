"""The main job on a real model, on a machine without an NPU: what ``npudump demo`` writes and runs.

``project`` is the test project, ``classifier`` its model and the weight of it that changes.
"""
