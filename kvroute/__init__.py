"""The one command line over all of the packages."""
