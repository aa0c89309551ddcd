"""Values without torch or I/O: what crosses module borders."""
