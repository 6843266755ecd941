"""Hidden tests and what they test, in two processes: scripts of their own (`__main__.py`, apart.py), of the standard library only."""
