"""Functions of the language, one module for each subject, and how they are declared, found and called.

`declaration` defines what a function is, `registry` lists all of them and adds those of installed packages, `arguments`
and `calling` turn a call into SQL, `python` registers bodies in Python with DuckDB. Every other module is a subject: it
ends with its `FUNCTIONS`, and knows neither the compiler nor the other subjects.
"""
