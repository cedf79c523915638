"""Conversations: messages go in, in the shapes that models' APIs use, and the context of the next turn comes out."""
