"""What a process says of itself: metrics and logs. No I/O here: the doors and actors carry the texts."""
