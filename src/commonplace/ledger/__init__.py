"""The append-only ledger: events, their hash chain, the views folded from them, and how a command becomes durable."""
