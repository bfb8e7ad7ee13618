"""What a log requires of those who write to it: valid batches, sequences without a gap, and transactions.

Knows the rules and error codes of Kafka for one partition, and restores their state from snapshots and
batches; knows no high watermark but as a number, and nothing of who asks. Read `producer_state` first, then
`ongoing_transactions`; `validate` checks a batch before either sees it.
"""
