"""The host: serves functions over HTTP, or in process, and owns everything between an event and its answer."""
