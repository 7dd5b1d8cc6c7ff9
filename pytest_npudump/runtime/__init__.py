"""One adapter a runtime, behind one small protocol."""
