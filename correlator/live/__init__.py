"""Knows how the running service concludes tick by tick: what is new, what it can change, what was published before.

Must not have a rule of its own about causes: a tick reaches the result of a full pass. Must not know repairs, answers, or replay.
"""
