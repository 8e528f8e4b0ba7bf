"""The wall: what of a query may cost more than it looks runs in a process of its own, which can be killed.

The store is open in the service's process, and DuckDB lets no second process open it. In that process a statement can
only be interrupted between two chunks of 2,048 rows: a single ``repeat`` over one chunk was seen to run for 263 s past its
limit. So a statement is cut (``cutting``): steps that are known to be cheap for each row (``judging``) run beside the store
and stream their rows out; all else runs in a process that was forked for this one statement (``forking``), has its own
memory limit, and is killed at its deadline (``asking``). What is not known to be cheap counts as dear: a function that is
added tomorrow is behind the wall until somebody proves it.
"""
