"""What higher apps listen to."""

from __future__ import annotations

from django.dispatch import Signal

__all__ = ["job_ended"]

# Sent with `job` inside the transaction that ends it (succeeded, failed or cancelled), so that a receiver's writes
# stand or fall with it. A cancellation in the queue reaches no worker: only this tells that the job is over.
job_ended = Signal()
