"""The layers of a run against the same ONNX model, computed by onnxruntime on the CPU in float32."""
