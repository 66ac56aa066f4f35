"""For tests of programs that use the plane: a private server in this process, one in its own, and a bad network.

Fixtures for pytest: `pytest_plugins = ["holdfast.client.testing.fixtures"]`.
"""

from holdfast.client.testing.chaos import Chaos, ChaosProxy
from holdfast.client.testing.inprocess import inprocess
from holdfast.client.testing.server import TestServer

__all__ = ["Chaos", "ChaosProxy", "TestServer", "inprocess"]
