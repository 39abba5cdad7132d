"""`python -m libs.cli`: the command line where no `farside` script is installed."""

from libs.cli.main import main

main()
