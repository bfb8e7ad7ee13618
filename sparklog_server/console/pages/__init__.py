"""One module for each page; each has `ROUTES`, which `app` serves."""
