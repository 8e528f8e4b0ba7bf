"""What receivers do to every record or line, as machine code over whole payloads (:mod:`parsers.compiled`).

Each file stands alone: compiled code calls only what is in its own file, which is all that the compiler's cache looks at.
"""
