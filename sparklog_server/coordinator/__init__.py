"""Coordinators: shards whose durable state is what they replay from one partition of an internal topic.

Knows records, decisions and time as an argument; knows neither the log nor replicas nor sockets. Begin
with `shard.py`: the two doors that `runtime.py` opens of every shard, whichever kind it is. Groups are in
`group/`.
"""
