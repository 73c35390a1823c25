#!/bin/sh
# Make the virtual environment and install Interlock in it, editable, with one extra.
#
#   scripts/setup.sh EXTRA      EXTRA is one of pyproject.toml's: examples, dev, bench
#
# PYTHON (python3) makes the environment, VENV (.venv) is its folder. Where nothing changed since the last time it
# returns at once. What goes wrong is said in one line; pip's own words are in the log.
set -eu

cd "$(dirname "$0")/.."
extra=$1
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
log=$VENV/install.log

fail() {
    echo "set-up failed: $*" >&2
    exit 1
}

# what an installation depends on; the folder too, since an editable installation points to it
state() {
    cat pyproject.toml constraints.txt scripts/setup.sh | cksum
    pwd
}

installed() {
    [ -x "$VENV/bin/python" ] && [ -f "$VENV/installed-$1" ] && [ "$(state)" = "$(cat "$VENV/installed-$1")" ]
}

if installed "$extra" && "$VENV/bin/python" -c "" 2>/dev/null; then
    exit 0
fi

command -v "$PYTHON" >/dev/null 2>&1 || fail "there is no $PYTHON; install Python 3.10 or newer, or give PYTHON=path"
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || fail "$PYTHON does not run"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$PYTHON is Python $version and 3.10 is needed; give another, as in PYTHON=python3.11"

if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -f "$VENV"/installed-*
    if "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; then
        why=$("$PYTHON" -m venv --clear "$VENV" 2>&1) || fail "cannot make $VENV: $(echo "$why" | tail -n 1)"
    elif "$PYTHON" -c 'import venv' 2>/dev/null && "$PYTHON" -m pip --version >/dev/null 2>&1; then
        # Debian keeps ensurepip in a package of its own; the pip that is there can bring another
        why=$("$PYTHON" -m venv --clear --without-pip "$VENV" 2>&1) || fail "cannot make $VENV: $(echo "$why" | tail -n 1)"
        "$PYTHON" -m pip --python "$VENV/bin/python" install --quiet pip >"$log" 2>&1 ||
            fail "$PYTHON has no ensurepip, and pip could not be had another way; on Debian: apt install python3-venv"
    else
        fail "$PYTHON has no venv module; on Debian: apt install python3-venv"
    fi
fi

echo "installing interlock[$extra] into $VENV; this takes a minute or two (log: $log)" >&2
if ! "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input -c constraints.txt -e ".[$extra]" >"$log" 2>&1
then
    # the first error is the cause; those after it report it again
    reason=$(grep -m 1 -o -E 'ERROR: .*' "$log" || tail -n 1 "$log")
    reason=${reason#ERROR: }
    case $reason in
    *" (from versions: none)"*)
        name=${reason#*requirement }
        reason="no package index answered for ${name% (from*}; check the network"
        ;;
    esac
    fail "$reason (log: $log)"
fi
state >"$VENV/installed-$extra"
if [ "$extra" = dev ]; then
    state >"$VENV/installed-examples" # dev holds examples
fi
