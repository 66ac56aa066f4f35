"""Mutations of a large document in a process of its own, so that every other request goes on meanwhile."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

from holdfast.common.errors import InvalidBody
from holdfast.state.layer.errors import DocumentTooLarge, MutationUnavailable
from holdfast.state.layer.worker_process import WorkerProcess, module_command

TIMEOUT_S: Final = 120.0
_COMMAND: Final = module_command("holdfast.state.layer.document.mutation.worker")
_STEP_BYTES: Final = 1 << 20
_ANSWER_BYTES_MAX: Final = 64 << 10


async def mutated(
    document: AsyncIterator[bytes], expressions: Sequence[str], *, now_ns: int, bytes_max: int
) -> AsyncGenerator[bytes, None]:
    """The changed document in pieces; a refusal comes before the first one."""
    order = json.dumps({"expressions": list(expressions), "now_ns": now_ns}).encode() + b"\n"
    async with aclosing(WorkerProcess(_COMMAND)) as process:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await process.open()
                await process.write(order)
                await process.write_document(document)
                await process.write_end()
                left_bytes = await _announced(process, bytes_max)
            while left_bytes:
                piece = await process.read(min(left_bytes, _STEP_BYTES))
                left_bytes -= len(piece)
                yield piece
        except TimeoutError:
            raise MutationUnavailable(f"the mutation took longer than {TIMEOUT_S:.0f} s") from None
        except BrokenPipeError:
            raise MutationUnavailable(
                "the process that mutates the document ended before its time; memory may be short"
            ) from None


async def _announced(process: WorkerProcess, bytes_max: int) -> int:
    """How large the changed document is."""
    answer = json.loads(await process.read_line(_ANSWER_BYTES_MAX))
    if "problem" in answer:
        raise InvalidBody(answer["problem"])
    size_bytes: int = answer["bytes"]
    if size_bytes > bytes_max:
        raise DocumentTooLarge(f"the document would be larger than {bytes_max} bytes")
    return size_bytes
