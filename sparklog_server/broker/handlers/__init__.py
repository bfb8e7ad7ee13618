"""One file per family of APIs. A handler gets a decoded request, and the port of its family
(`broker/ports.py`): it checks the request, calls the owner, and returns the response or a `Parked`.
"""
