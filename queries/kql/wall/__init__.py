"""The wall: what may cost more than it seems runs in its own process, which can be killed.

The store is open in the service's process, and DuckDB lets no second process open it. In that process a statement can
only be interrupted between two chunks of 2,048 rows: a single ``repeat`` over one chunk ran for 263 s past its limit.
So a statement is cut (``cutting``): steps that are known to be cheap for each row (``judging``) run beside the store
and stream their rows out. All else runs in a forked process (``forking``, ``children``), which has its own memory limit
and is killed at its deadline (``remote_query``), unless the rows are few (``few``) and that bounds what the rest may
cost. What is not known to be cheap counts as expensive: a function that is added tomorrow is behind the wall until it is
shown to be cheap.
"""
