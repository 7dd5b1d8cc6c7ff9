"""Golden files: their text, their place in the repository, and how they are written without loss."""
