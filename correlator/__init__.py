"""Why it happened: from stored rows to events, facts, causes, verdicts and incidents.

A full pass (``engine``) is a pure function of the stored rows; the live engine (``live``) comes to the same answer tick by
tick. Rooms import downwards only, in the order of docs/architecture.md; tests/test_house.py holds it.
"""
