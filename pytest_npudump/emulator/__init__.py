"""pyACL for a machine without an NPU."""
