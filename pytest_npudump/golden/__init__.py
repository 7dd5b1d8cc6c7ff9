"""Golden files: their place in the repository, and how they are written without loss.

``path`` is where a test's golden lies, ``variants`` which of its files counts and which run may be written
over it, ``store`` reads, stages and replaces one with what lies beside it; ``origin`` is what it records of
where it is from and when, and what changed. ``tensors`` is the file beside it; ``objects`` are tensors in a
store, ``stored_tensors`` those of a golden that lie there.

Beside a run: ``census`` says which files are whose and what is wrong with them; ``approval_merge`` makes one
of two acceptances.
"""
