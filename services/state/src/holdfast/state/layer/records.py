"""The records of documents: what is committed, and what a transaction has staged."""

from holdfast.state.layer.records_pb2 import Document, Stage
from holdfast.storage.tables import Table

DOCUMENTS = Table("doc", Document)
STAGES = Table("stage", Stage)
