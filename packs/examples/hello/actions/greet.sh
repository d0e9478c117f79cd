#!/bin/sh
# The parameters arrive in a file of NAME='value' lines, because the action asks for dotenv in a file.
set -eu
. "$ATTUNE_PARAMETER_FILE"
echo "greeting $name in $seconds s" >&2
sleep "$seconds"
printf '{"greeting": "Hello, %s!"}\n' "$name"
