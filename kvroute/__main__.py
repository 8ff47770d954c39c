"""``python -m kvroute``."""

from kvroute.cli import main

main()
