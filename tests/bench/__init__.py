"""Numbers with a name, comparable from run to run: `make bench`."""
