"""Named questions: functions that return a Core select over ``store.tables``; ``store.ask(question)`` runs it.

One module per subject. Values are bound, constants of ours are ``store.functions.const``. A query that runs repeatedly
in a loop is a module constant with ``sa.bindparam`` whose values come from ``.params(...)``: then it is not rebuilt
each time.
"""
