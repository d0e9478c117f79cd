#!/bin/sh
# Runs a command if the file it needs is in this clone; says what is missing otherwise.
# Usage: when-present.sh FILE NAME COMMAND...
set -eu
file=$1 name=$2
shift 2
if [ ! -e "$file" ]; then
    echo "$name is not in this version of Attune yet ($file is missing)." >&2
    exit 2
fi
exec "$@"
