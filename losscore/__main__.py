"""`python -m losscore`: the command line without an installed script."""

from losscore.cli import main

if __name__ == "__main__":
    main()
