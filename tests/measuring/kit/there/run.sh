#!/bin/sh
# Runs the items of this kit: sh run.sh --minutes 5 --output DIR torch=python3 jax=python3
# The program is run.py; it needs Python 3.8 or later and nothing else.
exec python3 "$(dirname "$0")/run.py" "$@"
