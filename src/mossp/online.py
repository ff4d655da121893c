"""Runs that are fed batch by batch: `mossp.online.Online`."""

from mossp.solving.online import Online

__all__ = ["Online"]
