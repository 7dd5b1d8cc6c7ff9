"""Facts of values: data types and layouts by number and name, small floats, what CANN's host tool garbles."""
