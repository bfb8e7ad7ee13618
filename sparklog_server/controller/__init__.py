"""The controller: the shard that decides what the cluster is.

It is asked with wire requests and answers with records of `metadata` and a wire reply; it does not know
raft, disks or sockets. Read `controller` for the two doors (`decide`, `replay`), then `topics` and
`brokers` for the rules, `elections` and `placement` for who leads and where replicas go.
"""
