"""A share of the kills and full disks, and a short long process."""

from __future__ import annotations

import pytest

from tests.adversarial import kills, long_process
from tests.adversarial.table import Row

pytestmark = pytest.mark.slow


def test_killed_runs_go_on_and_a_full_disk_keeps_the_last_checkpoint():
    """In one test: both are compared with the same unbroken run, of a process of its own."""
    row = Row("", "")
    kills.killed("recursive", 2, 1, row)
    assert row.tries == 3 and not row.failures
    assert kills.full("recursive", "file size") is None


def test_a_process_that_solves_again_and_again():
    right, bounded = long_process.attack(16)
    assert right.tries == 16 and not right.failures
    assert bounded.tries == 4 and not bounded.failures
