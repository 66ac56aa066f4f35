"""`python -m holdfast.gateway`."""

import sys

from holdfast.common.serving.process import main
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings

if __name__ == "__main__":
    sys.exit(main(GatewaySettings, create_app))
