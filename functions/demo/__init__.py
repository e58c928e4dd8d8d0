"""What `serving-stack demo` shows."""
