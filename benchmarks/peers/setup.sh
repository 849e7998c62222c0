#!/bin/sh
# Makes the environment of one peer with pip: setup.sh ENVDIR NAME, NAME one of fedjax, pfl, fluke, flower.
# It comes to lie in ENVDIR/NAME. PYTHON names the interpreter (3.11), PIP_* settings of pip are respected.
set -eu
env="$1/$2"
list="$(dirname "$0")/requirements/$2"
"${PYTHON:-python3}" -m venv "$env"
"$env/bin/pip" install --quiet --requirement "$list.txt"
# What asks for packages it does not need for this work, some of them of several GB.
if [ -f "$list.no-deps.txt" ]; then "$env/bin/pip" install --quiet --no-deps --requirement "$list.no-deps.txt"; fi
