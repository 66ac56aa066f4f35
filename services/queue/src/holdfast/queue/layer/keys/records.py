"""What is kept of queues over keys beside the keys themselves."""

from holdfast.queue.layer.records_pb2 import KeyConsumer, KeyDue, KeyQueue, KeyReady, KeyTurn
from holdfast.storage.tables import Table

QUEUES = Table("kq", KeyQueue)
CONSUMERS = Table("kqconsumer", KeyConsumer)
TURNS = Table("kqturn", KeyTurn)
LEAVING = Table("kqleaving", KeyTurn)
READY = Table("kqready", KeyReady)
DUE = Table("kqdue", KeyDue)
