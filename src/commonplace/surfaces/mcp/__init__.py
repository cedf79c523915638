"""The MCP server of a book: tools, resources and prompts for models, over the verbs of one participant."""
