"""The services of Farside, one folder each, all of one anatomy; none imports another."""
