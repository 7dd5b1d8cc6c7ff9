"""Facts about the values of a dump that no file of it says: ``dtypes``."""
