"""The ways into a log: from an offset to a position, from a timestamp to a record, from a range to the
transactions that were aborted in it.

Knows the segments of a log and reads their indexes and headers; changes no segment, and knows neither
retention nor recovery. Read `places` first: every Fetch calls it.
"""
