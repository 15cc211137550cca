"""Tests on a real server, which internal/e2e starts: AGENTSTREAM_SERVER is its address, CUTS how many
cuts are made, AGENTSTREAM_PROGRAM the program."""

from __future__ import annotations

import os
import secrets

import pytest


@pytest.fixture
def url() -> str:
    return os.environ["AGENTSTREAM_SERVER"]


@pytest.fixture
def cuts() -> int:
    return int(os.environ.get("CUTS", "15"))


@pytest.fixture
def run_id() -> str:
    return f"run_{secrets.token_hex(6)}"
