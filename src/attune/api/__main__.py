"""Prints the reference page of routes."""

import sys

from attune.api.reference import render_routes

sys.stdout.write(render_routes())
