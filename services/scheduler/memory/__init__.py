"""What the cycle keeps in memory, in columns that change row by row, and the arrays that a plan is made from."""
