"""Asks TensorFlow Serving, by REST or gRPC, without Keras and tfcaps."""
