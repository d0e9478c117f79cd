"""Prints the reference page of failpoints; with a folder that a run has left, what of them the run has reached."""

import sys
from pathlib import Path

from attune.runtime.failpoints.once import coverage
from attune.runtime.failpoints.reference import failpoint_reference

folders = sys.argv[1:]
sys.stdout.write(f"{coverage(Path(folders[0]))}\n" if folders else failpoint_reference())
