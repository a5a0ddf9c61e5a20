"""``python -m notsodeep``."""

from notsodeep.cli import main

main()
