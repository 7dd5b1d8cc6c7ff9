"""What one run left: ``run_dump`` reads its dump, ``snapshot`` is that without its files.

What a dump does not tell: ``diagnose`` why it holds nothing, ``unwritten`` what no kernel wrote,
``empty_operators`` which ones left no file, ``dataflow`` which tensor feeds which.
"""
