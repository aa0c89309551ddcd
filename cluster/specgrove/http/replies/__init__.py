"""Events of a generation as OpenAI's replies: state machines without I/O."""
