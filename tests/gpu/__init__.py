"""Checks on a GPU, outside pytest: `make gpu-check` or `python -m tests.gpu`."""
