"""The command line: a table of commands in `main`, a module for each group, imported only when it is asked for."""
