"""JSON text without its white space: checked, and otherwise kept byte for byte.

`compact` takes a body in memory, `Compactor` one that streams; `grammar` has the rules of RFC 8259 as patterns.
"""

from holdfast.common.json_text.compactor import Compactor
from holdfast.common.json_text.inline import compact

__all__ = ["Compactor", "compact"]
