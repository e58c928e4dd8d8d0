"""The functions that react to events, and everything that runs them."""
