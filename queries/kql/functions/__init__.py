"""Functions of the language: signatures with templates, forms that look at their arguments, bodies in Python."""
