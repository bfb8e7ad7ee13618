"""From settings and directories to the parts of a broker: formatting, the checks of a start, recovery of the
logs, and the partitions of this node.

Runs before the first request, but for recovery, which goes on beside them. Read `parts` first.
"""
