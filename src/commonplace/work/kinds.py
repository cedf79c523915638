"""The kinds of events of a work."""

from __future__ import annotations

CREATED, CHANGED = "work.created", "work.changed"

ADDED, EDITED, LINKED, ASSIGNED = "task.added", "task.edited", "task.linked", "task.assigned"
BLOCKED, UNBLOCKED, CANCELLED = "task.blocked", "task.unblocked", "task.cancelled"
CLAIMED, RELEASED, LOST, DUE = "task.claimed", "task.released", "task.lost", "task.due"
SUBMITTED, COMPLETED, FAILED, RETRIED = "task.submitted", "task.completed", "task.failed", "task.retried"
REVIEWED = "task.reviewed"

DECIDED, DISCOVERED, PRODUCED, BRANCHED = "work.decided", "work.discovered", "work.produced", "work.branched"
NUDGED, DELIVERED, ACKNOWLEDGED = "work.nudged", "work.delivered", "work.acknowledged"
ASKED, ANSWERED, ESCALATED, RESOLVED = "work.asked", "work.answered", "work.escalated", "work.resolved"
LED, HANDLED, JUDGED = "work.led", "work.handled", "work.judged"
