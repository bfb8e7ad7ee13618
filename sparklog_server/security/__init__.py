"""Who a client is and what it may do: pure functions and tables, without I/O, clock and threads.

It knows the metadata image, and not the broker that asks. Read `authorizer.py` first.
"""


class NotLoaded(Exception):
    """The metadata is not known yet, so nothing can be decided, except for super users."""
