"""The target replica: it owns sessions, decides when a step runs, and verifies what drafts send."""
