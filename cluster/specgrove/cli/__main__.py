"""`python -m specgrove.cli`."""

from specgrove.cli import main

main()
