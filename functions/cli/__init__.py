"""What a person runs: one module per command, each imported only when its command is."""
