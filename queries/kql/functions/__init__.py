"""Functions of the language, one module for each subject, and how they are declared, found and called.

`declaration` says what a function is, `registry` lists all of them and takes those of installed packages, `arguments` and
`calling` make a call into SQL, `python` gives bodies in Python to DuckDB. Every other module is a subject: it ends with its
`FUNCTIONS`, and knows neither the compiler nor the other subjects.
"""
