"""A book behind an HTTP server: the verbs as routes, the change feed as server-sent events, MCP beside them."""
