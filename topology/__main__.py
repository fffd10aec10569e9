"""`python -m topology` prints the reference table."""

from topology.analysis import main

main()
