"""`python -m functions` is `serving-stack`."""

from functions.cli.main import main

main()
