"""The markdown people edit: pages of blocks as files, and the hand edits in them taken in. `pages` is pure text,
`folder` is the edge. Neither knows what a block stands for."""
