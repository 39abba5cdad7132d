"""The walls: what each principal must not be able to do, tried against real servers configured as they are deployed."""
