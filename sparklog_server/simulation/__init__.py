"""Simulation in virtual time, on disks that crash and networks that lose messages, from one seed.

    cluster                one broker and its clients: the broker's calls and effects replace `daemon`
    world, network         several machines, each with a disk, a clock and a process, joined by byte streams
    scenario, nemesis      the faults of a run, a list made up front, as text; `shrink` makes it short
    raft_world             raft nodes in a world, with the `invariants` checked after each call

The same seed gives the same run. Read `disk` first, then `cluster` or `world`.
"""
