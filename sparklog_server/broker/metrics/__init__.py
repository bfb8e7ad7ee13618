"""What the broker says of itself: reports at /metrics, request times and errors, slow requests, spans, and
the metrics that clients push.

Reads the other rooms and changes none of them; nothing here decides how a request is served. Read `report`
for what an operator scrapes, `observers` for what is noted of each request.
"""
