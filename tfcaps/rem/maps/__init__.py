"""Maps of what in an image moves a class."""
