"""Prints the reference page of all settings: `python -m attune.runtime.settings > docs/reference/settings.md`."""

import sys

from attune.runtime.settings.report import settings_reference

sys.stdout.write(settings_reference())
