"""What billing decides: which price holds, what a closing costs, how money is rounded. Pure: no I/O."""
