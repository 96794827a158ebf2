"""Several browsers at random for some minutes, outside pytest: `make soak` or `python -m tests.soak`."""
