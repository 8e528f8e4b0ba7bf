"""Why it happened: from stored rows to events, facts, causes, verdicts and incidents.

A full pass (``engine``) is a pure function of the stored rows; the live engine (``live``) reaches the same result tick
by tick. Packages import downwards only, in the order of docs/architecture.md; tests/test_house.py checks it.
"""
