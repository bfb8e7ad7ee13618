"""Membership of a consumer in its group, and the committed offsets of the group.

`group` is one machine for one group: `member` finds the coordinator, `classic` (JoinGroup, SyncGroup,
Heartbeat) or `modern` (KIP-848) keeps the membership, `offsets` commits and fetches. `group_thread` drives
it over connections of its own while the user's code runs. `assignors` computes the assignments of classic
groups.

It knows no record and no position: it says which partitions are owned, and the consumer reads them. Read
`member.py` first, then `classic.py`.
"""
