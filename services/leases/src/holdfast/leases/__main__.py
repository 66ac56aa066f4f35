"""`python -m holdfast.leases`."""

import sys

from holdfast.common.role import Role
from holdfast.common.serving.process import main
from holdfast.leases.app import create_app
from holdfast.leases.settings import LeasesSettings

if __name__ == "__main__":
    sys.exit(main(LeasesSettings, create_app, Role.LEASES))
