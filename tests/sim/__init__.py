"""A simulator: the real cores of the services over a bus in memory, in virtual time, with faults drawn from a seed."""
