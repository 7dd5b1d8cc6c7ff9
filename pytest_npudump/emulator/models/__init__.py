"""Models and single operators, run by onnxruntime, and how they fail."""
