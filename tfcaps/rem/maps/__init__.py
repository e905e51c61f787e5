"""Maps of the pixels of an image that matter for a class."""
