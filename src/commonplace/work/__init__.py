"""Working memory: one graph of tasks, with what was decided and found on the way, that agents and people share."""

from __future__ import annotations
