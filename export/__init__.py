"""Export of trained models to TensorFlow Serving."""
