"""What receivers do to every record or line, as machine code over whole payloads (:mod:`parsers.compiled`).

Each file is self-contained: compiled code calls only functions of its own file, because the compiler's cache checks no
other.
"""
