"""The roles of a node of the metadata quorum, and the legal moves between them.

    UNATTACHED ──timeout──► PROSPECTIVE ──majority of pre-votes──► CANDIDATE ──majority of votes──► LEADER
      ▲   ▲                  │      ▲  ▲                             │                               │
      │   └── no majority ───┘      │  └──── election timeout ────────┘     no majority has fetched,  │
      │                             │                                      a hung sync, a shutdown   ▼
      │                       fetch timeout,                                                      RESIGNED
      │                       link refused                                                           │
      │                             │                                                                │
      └── higher epoch ────────  FOLLOWER  ◄── any role learns of a leader           election timeout┘

A higher epoch without a known leader moves any role to UNATTACHED, with a known leader to FOLLOWER. A node
that is no voter (an observer) is UNATTACHED or FOLLOWER only, unless it was one and its removal may not be
committed. A storage failure moves any role to HALTED.
The only voter of a quorum skips the pre-vote.
"""

from enum import Enum


class Role(Enum):
    """The role of a node in its epoch; see the picture of the module."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    HALTED = "halted"
    CLOSED = "closed"


_END = (Role.HALTED, Role.CLOSED)
LEGAL = {
    Role.UNATTACHED: {Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER, *_END},
    Role.PROSPECTIVE: {Role.UNATTACHED, Role.CANDIDATE, Role.FOLLOWER, *_END},
    Role.CANDIDATE: {Role.UNATTACHED, Role.PROSPECTIVE, Role.LEADER, Role.FOLLOWER, *_END},
    Role.LEADER: {Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED, *_END},
    Role.FOLLOWER: {Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER, *_END},
    Role.RESIGNED: {Role.UNATTACHED, Role.FOLLOWER, *_END},
    Role.HALTED: {Role.CLOSED},
    Role.CLOSED: set(),
}
