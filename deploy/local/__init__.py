"""The local stack: real servers from wheels and Farside's own services as separate processes on loopback."""
