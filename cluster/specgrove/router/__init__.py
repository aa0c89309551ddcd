"""Which, as pure decisions: no clock, no socket, no random source."""
