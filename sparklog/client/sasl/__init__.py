"""SASL as a client speaks it: one machine for each mechanism, and the logins that make them.

A machine takes the broker's challenges and returns the responses; it does no I/O and reads no clock. Read
`machines.py` first. The broker's machines are in `sparklog_server/security`; both sides share
`scram_messages.py` and `jaas.py`.
"""
