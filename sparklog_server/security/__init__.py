"""Authentication and access: what a client proves of itself, and what it may do.

Machines and tables without I/O, clock, threads or entropy; they know the metadata image, and not the broker
that asks. Access: read `authorizer.py` first. SASL: read `sasl.py`, then `scram.py`, `plain.py` and
`oauth.py`.
"""

from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated."""


class NotLoaded(Exception):
    """The metadata is not known yet, so nothing can be decided, except for super users."""
