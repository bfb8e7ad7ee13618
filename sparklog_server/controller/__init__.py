"""The controller: the shard that decides on changes of the cluster.

It takes wire requests and returns records of `metadata` and a wire reply; it does not know raft, disks or
sockets. Read `controller` for the two entry points (`decide`, `replay`), then `topics` and `brokers` for the
rules, `sessions` for the liveness of brokers, `elections` and `placement` for leaders and replicas.
"""
