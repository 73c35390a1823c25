#!/bin/sh
# Make a virtual environment with torch_xla, which needs a torch of its own release, and Interlock in it, editable.
#
#   scripts/xla_env.sh FOLDER         then: PJRT_DEVICE=CPU FOLDER/bin/python -m pytest tests/xla
#
# PYTHON (python3, 3.10 to 3.13) makes it. It takes a few minutes and about 7 GB; where the folder holds one made
# from the same inputs it is kept. pip's own words are in FOLDER/install.log.
set -eu

folder=${1:?usage: scripts/xla_env.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
stamp=$folder/xla-installed
log=$folder/install.log

fail() {
    echo "xla set-up failed: $*" >&2
    exit 1
}

# what the installed packages depend on
state() {
    cat scripts/xla_env.sh | cksum
    "$PYTHON" -c 'import sys; print(sys.version)'
}

install() {
    "$folder/bin/python" -m pip install --disable-pip-version-check --no-input "$@" >>"$log" 2>&1 ||
        fail "$(grep -m 1 -o -E 'ERROR: .*' "$log" || tail -n 1 "$log") (log: $log)"
}

if ! { [ -f "$stamp" ] && [ "$(state)" = "$(cat "$stamp")" ] && "$folder/bin/python" -c '' 2>/dev/null; }; then
    rm -f "$stamp"
    "$PYTHON" -m venv --clear "$folder" || fail "cannot make an environment in $folder with $PYTHON"
    echo "installing torch_xla into $folder; this takes a few minutes (log: $log)" >&2
    install "torch==2.9.*" "torch_xla==2.9.*"
    install "pluggy>=1.7" "importlib-metadata>=6.0" "packaging>=22" "rich>=13" numpy "setuptools>=77" wheel \
        "pytest>=8" "pytest-timeout>=2.2" "scikit-learn>=1.3" "matplotlib>=3.7"
    state >"$stamp"
fi

# the checkout that asks is the one that is tested
install --no-build-isolation --no-deps -e .
