"""The text of docs/benchmarks.md around the tables."""

from typing import Final

PAGE: Final = """# Benchmarks

Written by `make bench` on {date}, on {machine}.
Absolute numbers belong to that machine at that hour; the ratios are what is promised, and both sides of each were
measured in the same run.

## Targets

{targets}

## What is not reached, and why

**CPU of the hot operations.** A lock cycle profiled in process on 2026-11-19 (16 connections, an unindexed document of 1 KB, callgrind and
cProfile): 1.9 million instructions, of which CPython itself takes 81 %, RocksDB 5 %, protobuf 2.5 %, SHA-256 1.6 %, pydantic-core 1.2 %; 1,200 calls
of functions, no single one above 5 % of the time. By what they serve: storage 45 % (transactions 11, pending batches and their latest records 10, staging 8,
keys and tables 8, layout, journal and RocksDB 8), HTTP 27 % (messages 11, running a request 8, the connection 7), the rules, services and protocols of leases and
state 18 %, ids, clock and fields 4 %. On sockets, sampled with a new connection for each operation: CPython 60 %, the kernel 24 %, libc and RocksDB 5 % each,
protobuf 3 %. What is left is many small steps. The prototype of the design, run beside this frame, takes 1.03 of the frame's CPU: it keeps no history and no revisions, decodes nothing,
has three tables known to its engine and writes to RocksDB once in a thousand changes. Revisions, history, watches and one storage port for four backends are what
the difference pays for; a half of it would take an engine that knows the records of its layers.

**Puts of keys.** A put of a key costs 1.01 to 1.09 of an update in three of five runs on 2026-11-20, up to 1.20 in the others. It writes three records where the update writes one: the key, the change in
the log, and the counter. By py-spy, 64 connections, of the loop's time: transactions 51 % (the rules of keys 18 of them, commits 22), applying what is durable 11 %, and removing the history that is no longer kept
10 %, one old change for each new one; that has become cheaper since.

**Rates against commit b7c97e1.** They follow from that CPU, because the server's core is what is short. One process on disk, 16 clients with a connection for each
operation, by `make bench-against REV=b7c97e1 ARGS="--new-connections --rounds 6"` on 2026-11-19, medians:

| operation                      | CPU to b7c97e1 | rate to b7c97e1 | wanted | holds  |
|--------------------------------|----------------|-----------------|--------|--------|
| a lock cycle                   | 0.54           | 1.63            | 2.5    | **no** |
| a transaction over two keys    | 0.62           | 1.46            | 3.5    | **no** |
| a public read                  | 0.30           | 1.93            | 2.5    | **no** |
| a put of an attachment of 1 KB | 0.62           | 1.49            | 2.2    | **no** |
| a message's life               | 0.55           | 1.61            | 1.6    | yes    |
| a page of 50 keys              | 0.72           | 1.37            | 1.7    | **no** |

Over PostgreSQL, kept connections: one process 2.33 times the lock cycles (wanted 2), five processes 2.88 times the lock cycles (2.5) and 3.30 times the transactions (3).

**Tried again and left out:** more than 10,000 young objects before the collector looks (5 % less in four rounds, where the
same tree twice differed by 3 %); a CPython 3.11 that was built with profile-guided optimisation (a lock cycle 0.96, a public read 1.00 of the CPU). Measured
again, and kept: recognising heads without the parser (a read on a kept connection 4 % less CPU, a lock cycle and a read by a new connection 1 %).

**Reads beyond the cache.** A document of 1 KB takes about 2.3 KB of `--state-cache-bytes` (64 MiB): 10^5 of them would need 256 MiB. A miss costs RocksDB's
look-up, decoding and rendering, three to four times what a hit does; both stay flat from there on.

**Uploads of 5 MB.** About 15 ms, where half of `cat` and SHA-256 would be 13: of these 2 to 3 are the acquire and the release, the rest reading the
socket and compacting on one core.

**One writer and many.** On PostgreSQL a commit of one writer is a round trip and PostgreSQL's own sync. On disk one writer has become quicker since the event
loop syncs by itself, so 64 writers are a smaller multiple of it; what bounds them is the CPU of each commit, in the last column. At full speed they keep the
loop busy, which is the stall that is seen there.

**The gateway's hop.** A read costs its service so little that one more request, parsed, signed, sent, and its answer passed on, is several times it. Beside a
durable write it is within its bound.

**Encryption.** Each value is sealed under a key of its own, which is wrapped in turn: two sealings for each record that a cycle writes. On kept connections, where the rest
of a cycle costs least, that is more than half of it.

## Store

Writers commit {value_bytes}-byte values one after the other, each on its own, on keys spread over the whole range. The raw
log is a preallocated file that takes a record of the same size and syncs it, with nothing around it, measured before
and after each row. CPU is of the client process, all its threads. PostgreSQL: {postgres_origin}.

{store}

A stall is how late a timer of one millisecond fires; with nothing to do it is the machine's own. At a steady {steady}
commits/s the loop has time to spare, so what is added comes from syncing. At full speed {writers} writers keep the loop
busy themselves: their own work for one group of commits is part of that figure.

## HTTP

Server CPU for one small POST, same body and answer: by the express lane, by a bare ASGI echo under uvicorn (`asgi`), and
by the same endpoint as plain FastAPI (`fastapi`).

{http}

## Gateway

CPU for one call to a service on disk, sent to it directly, and sent through a gateway in another process (both processes).
The hop is what the second way costs more; a `get` reads a document, a `keepalive` is a durable write.

{gateway}

## Transactions

{clients} clients commit transactions over two keys, each on its own keys: two acquires, two updates, and the release that
commits both. Latency is that of the release; CPU is of all processes of the plane, without PostgreSQL's. The commit is
one storage transaction of the process that got the release.

{transaction}

## Beside the frame

The frame is a server with nothing in it: it parses requests, writes them to a file that is synced once per turn of the loop, and
answers with canned bodies of the same sizes and ids of their own. A plane on disk and its frame take turns under the same load of
{frame_clients} clients, written in {load}. The yardstick is the frame's lock cycle (acquire, update of 1 KB, release) with one new
connection for each: ratios are to its CPU, and to its rate, in the same round; medians of all rounds. Targets are of one
connection for each operation, as lockd's load tool has it, but for a public read: that tool keeps its connections for reads,
so its target is of kept ones.

{frame}

## Encryption

A lock cycle on an encrypted store and on a plain one, two planes in turns under the same load: server CPU per operation.

{encryption}

## Keys in etcd's way

Puts and ranges of keys with a kilobyte of content through `/v3`, on kept connections, beside an update of a document under a lease that
lasts and a public read: one plane on disk, in turns, CPU of the server, medians of all rounds. A range of a key that was asked for
before comes from memory, as a public read does. In the fan-out one connection puts a key again and again while so many others watch
its prefix; the rate is of events delivered, all of them, and most of the CPU is the kernel's, which sends each to its socket.

{keys}

## Growth

A plane on a store of each size, in turns under the same load of {growth_clients} clients, with kept connections; operations go over
all keys of the store. Each key has been leased and has a document of 1 KB, which the index of contents leaves out.
Keys are read one after the other over the whole range, so a store whose documents do not fit into `--state-cache-bytes` is
read from RocksDB every time, and one whose documents do is not. The second table has what else grows: messages and leases lie in
the store before the plane starts, and each caller that waits has a connection of its own.

{growth}

## Large things

Up means: sent under a lease, and published by its release; down: read by the public and hashed. Beside them, in the same round: `cat`
through a pipe into a SHA-256, and a copy of the file that is synced at its end, as what is uploaded has to be. RSS is of
the server's process. Between the two the plane comes to rest: a large document is summarised for queries by a process of low
priority, of which neither figure has a part.

{large}

## Locks over TCP

A lock and its release, three lines each, on connections that are kept, each with a key of its own; the locks are in memory. The
skeleton splits the lines, keeps a dict of locks and answers: it has no leases, no waiters and no limits. Both take turns
under the same load. CPU is of the server. {idle_connections} connections that were asked once and then do nothing take {idle_kb} KB
of the server's RSS each.

{locks}

## Compaction of JSON

A document in memory is checked and freed from white space; beside it {parser} parses the same text to Python objects. CPU of one thread.

{compaction}
"""
