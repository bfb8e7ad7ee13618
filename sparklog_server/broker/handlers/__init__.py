"""One file per family of APIs. A handler gets a decoded request: it checks the request, calls the owner, and
returns the response or a `Parked`.
"""
