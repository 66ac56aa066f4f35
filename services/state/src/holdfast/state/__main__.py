"""`python -m holdfast.state`."""

import sys

from holdfast.common.role import Role
from holdfast.common.serving.process import main
from holdfast.state.app import create_app
from holdfast.state.settings import StateSettings

if __name__ == "__main__":
    sys.exit(main(StateSettings, create_app, Role.STATE))
