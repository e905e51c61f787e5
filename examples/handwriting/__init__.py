"""Handwritten digits and clothes, told by the strokes they are made of."""
