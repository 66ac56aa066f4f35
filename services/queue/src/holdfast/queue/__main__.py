"""`python -m holdfast.queue`."""

import sys

from holdfast.common.role import Role
from holdfast.common.serving.process import main
from holdfast.queue.app import create_app
from holdfast.queue.settings import QueueSettings

if __name__ == "__main__":
    sys.exit(main(QueueSettings, create_app, Role.QUEUE))
