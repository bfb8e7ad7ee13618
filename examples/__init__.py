"""Programs to read and to copy from; each runs by itself, `python -m examples.<name>`."""
