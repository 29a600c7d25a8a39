#!/usr/bin/env bash
# Starts a command as N processes of one run on this machine:
#
#   launch/local.sh 2 python -m experiments.NAME --config=... --workdir=...
#
# Each process gets --distributed=flags and its index (see
# promptrl_jax/tools/distributed_flags.py). The output of process 0 is unchanged; lines
# of other processes start with their index. If one process fails, the script
# ends the others and returns the status of the failed one.
set -euo pipefail

# Seconds that processes get to exit after a signal, before they are killed.
grace_s=${GRACE_S:-10}

usage() {
  echo "usage: launch/local.sh N command [argument ...]" >&2
  exit 2
}

[[ $# -ge 2 && $1 =~ ^[1-9][0-9]*$ ]] || usage
count=$1
shift

# The kernel picks a free port, and reuses a port only after many others.
port=$(python3 -c '
import socket
with socket.socket() as probe:
  probe.bind(("127.0.0.1", 0))
  print(probe.getsockname()[1])')

pids=()

# Sends a signal to each process group that is still alive.
signal_all() {
  local pid
  for pid in "${pids[@]}"; do
    kill -s "$1" -- "-$pid" 2>/dev/null || true
  done
}

any_left() {
  local pid
  for pid in "${pids[@]}"; do
    if kill -s 0 "$pid" 2>/dev/null; then
      return 0
    fi
  done
  return 1
}

# Signals all processes, waits, kills the remaining ones, and exits.
end_all() {
  trap '' INT TERM HUP
  signal_all "$1"
  local i
  for ((i = 0; i < 10 * grace_s; i++)); do
    any_left || break
    sleep 0.1
  done
  # Child processes may have ignored the signal.
  signal_all KILL
  exit "$2"
}

# A trap runs in the middle of `wait`, where the shell cannot reap children, so
# the traps only record the signal.
received=
trap 'received="INT 130"' INT
trap 'received="TERM 143"' TERM
trap 'received="HUP 129"' HUP

# Even after kill -9 of this script no process may be left: the guard is told
# the process groups through a pipe that closes when the script exits.
exec {guard}> >(
  trap '' INT TERM HUP
  exec "$(dirname "${BASH_SOURCE[0]}")/guard.sh"
)

# The prefixing process must outlive the signal to print the last lines.
prefix() {
  trap '' INT TERM HUP
  exec sed -u "s/^/[$1] /" {guard}>&-
}

for ((i = 0; i < count; i++)); do
  arguments=(
    "--distributed=flags" "--coordinator=127.0.0.1:$port"
    "--num_processes=$count" "--process_id=$i"
  )
  out=1 err=2
  if ((i > 0)); then
    exec {out}> >(prefix "$i") {err}> >(prefix "$i" >&2)
  fi
  # Job control puts each process into its own process group, so that signals
  # reach its children. Without job control, the shell would ignore SIGINT in
  # background processes.
  set -m
  "$@" "${arguments[@]}" </dev/null >&"$out" 2>&"$err" {guard}>&- &
  set +m # Job control would print a message for each process that ends.
  pids+=($!)
  echo $! >&"$guard"
  if ((i > 0)); then
    exec {out}>&- {err}>&-
  fi
done

left=$count
while ((left)); do
  status=0
  wait -n || status=$?
  if [[ $received ]]; then
    # On an interrupt, a run saves its last step and prints how to resume.
    # shellcheck disable=SC2086
    end_all $received
  elif ((status != 0)); then
    echo "launch/local.sh: a process ended with status $status" >&2
    end_all TERM "$status"
  fi
  left=$((left - 1))
done
printf -- '-%s\n' "${pids[@]}" >&"$guard"
