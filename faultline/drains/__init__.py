"""The drain advisor's acting mode: decides by guards whether advice to drain is carried out, does it, and records both.

Off unless the site turns it on (``[drain_advisor]``). It knows the store, the repair list and Slurm's ``scontrol``; pages and
reports read what it recorded, and nothing else asks it.
"""
