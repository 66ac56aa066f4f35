"""`python -m holdfast.txn`."""

import sys

from holdfast.common.role import Role
from holdfast.common.serving.process import main
from holdfast.txn.app import create_app
from holdfast.txn.settings import TxnSettings

if __name__ == "__main__":
    sys.exit(main(TxnSettings, create_app, Role.TXN))
