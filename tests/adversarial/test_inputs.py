"""A share of the hostile arguments."""

from __future__ import annotations

import pytest

from tests.adversarial import children, inputs

pytestmark = pytest.mark.slow


SHARE = 150


def test_hostile_arguments():
    """In a process of its own, whose memory is bounded."""
    found = children.supervise("inputs", (), SHARE, inputs.PATIENCE)
    assert not [(report["case"], report["fault"]) for report in found if report["fault"]]
