"""What each endpoint accepts, field by field."""
