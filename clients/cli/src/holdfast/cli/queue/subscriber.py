"""What `holdfast queue subscribe` does, on an event loop: messages as they come, printed or given to a command."""

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import Final

import typer

from holdfast.cli.client.print import printable
from holdfast.cli.output import OutputFormat
from holdfast.cli.queue.print import exports, shown
from holdfast.cli.queue.target import QueueTarget
from holdfast.cli.streams import standard_output
from holdfast.client import AsyncDelivery, ClientError
from holdfast.client.aio.queue.subscription import Subscription

_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Work:
    """One run of the command."""

    def __init__(self, command: str, output: OutputFormat, count: int, retry_delay_s: float) -> None:
        self._command = command
        self._output = output
        self._count = count
        self._retry_delay_s = retry_delay_s
        self._is_ending = False

    async def run(
        self,
        target: QueueTarget,
        *,
        prefetch: int,
        visibility_s: float | None,
        block_s: float | None,
        stateful: bool,
        owner: str | None,
    ) -> None:
        async with (
            target.async_client() as client,
            target.async_of(client).subscribe(
                prefetch=prefetch,
                visibility_s=visibility_s,
                block_s=block_s,
                with_state=stateful,
                owner=owner,
                close_delay_s=self._retry_delay_s,
            ) as subscription,
        ):
            for number in _ENDING:
                asyncio.get_running_loop().add_signal_handler(number, self._end, subscription)
            await self._handle_all(subscription)

    def _end(self, subscription: Subscription) -> None:
        self._is_ending = True
        subscription.close_soon()

    async def _handle_all(self, subscription: Subscription) -> None:
        handled = 0
        async for delivery in subscription:
            handled += 1
            if handled == self._count:
                subscription.close_soon()  # Before the ack, which would bring one more.
            try:
                await self._handle(delivery)
            except ClientError as error:
                # This message comes again; the others go on.
                typer.echo(f"error: {delivery.message_id}: {printable(str(error))}", err=True)

    async def _handle(self, delivery: AsyncDelivery) -> None:
        if self._command:
            async with delivery.kept():
                await self._resolve(delivery, await self._execute(delivery))
        else:
            async with delivery:
                await self._print(delivery)

    async def _print(self, delivery: AsyncDelivery) -> None:
        message = delivery.message
        if self._output is OutputFormat.JSON:
            members = {**message.raw, **shown(await delivery.payload.read())}
            typer.echo(json.dumps(members, separators=(",", ":")))
        else:
            typer.echo(
                f"message_id={printable(message.message_id)} attempts={message.attempts} "
                f"max_attempts={message.max_attempts} payload_bytes={message.payload_bytes}"
            )
            await delivery.payload.save_to(standard_output())
            if message.payload_bytes:
                typer.echo("")

    async def _execute(self, delivery: AsyncDelivery) -> int:
        """The status of the command. When the message is lost, the command is told to end."""
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", self._command),
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, **dict(exports(delivery.message))},
        )
        feeding = asyncio.create_task(_feed(process, delivery))
        ended = asyncio.create_task(process.wait())
        lost = asyncio.create_task(delivery.lost.wait())
        try:
            await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                _terminate(process)
            return await ended
        finally:
            lost.cancel()
            feeding.cancel()
            await asyncio.wait({feeding})
            if not feeding.cancelled():
                feeding.result()

    async def _resolve(self, delivery: AsyncDelivery, status: int) -> None:
        if status == 0:
            await delivery.ack()
            outcome = "acknowledged"
        elif self._is_ending:
            await delivery.nack(intent="defer")  # Stopped together with us: not the fault of the message.
            outcome = "requeued"
        else:
            reason = f"exit status {status}" if status > 0 else f"signal {-status}"
            await delivery.nack(delay_s=self._retry_delay_s, reason=reason)
            outcome = "requeued"
        members = {"message_id": delivery.message_id, "status": status, "outcome": outcome}
        text = " ".join(f"{name}={value}" for name, value in members.items())
        typer.echo(json.dumps(members) if self._output is OutputFormat.JSON else text, err=True)


async def _feed(process: asyncio.subprocess.Process, delivery: AsyncDelivery) -> None:
    """The payload on standard input; a command need not read it."""
    assert process.stdin is not None, "it is a pipe"
    try:
        async for chunk in delivery.payload:
            process.stdin.write(chunk)
            await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        return
    except ClientError:
        _terminate(process)  # It has seen only a part of the payload.
        raise
    finally:
        process.stdin.close()


def _terminate(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # It has ended meanwhile.
        process.terminate()
