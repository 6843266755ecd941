"""One command and all that it starts, under bounds: a script (`__main__.py`) and what it shares with the environment process. Nothing in here
imports anything but the standard library and, in the script, its neighbours."""
