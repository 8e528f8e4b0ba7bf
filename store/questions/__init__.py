"""Named questions: functions that give a Core select over ``store.tables``; ``store.ask(question)`` answers it.

One module a subject. Values are bound, constants of ours are ``store.functions.const``. A question that is asked again and
again in a loop is a module constant with ``sa.bindparam`` whose values ``.params(...)`` gives: making it costs nothing then.
"""
