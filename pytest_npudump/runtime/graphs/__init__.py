"""What torch runs on the NPU of this process, seen by whichever adapter dumps.

``dispatch`` sees its operators, by a ``lowest_mode``, ``captured`` its captured graphs, of which
``capture_rules`` say what a dump holds, and the ``threads`` that run either.
"""
