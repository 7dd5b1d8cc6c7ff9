"""JSON and regular expressions as the C++ libraries of CANN and MindSpore read them."""
