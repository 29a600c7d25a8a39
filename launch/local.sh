#!/usr/bin/env bash
# Starts a command as N processes of one run on this machine:
#
#   launch/local.sh 2 python -m experiments.NAME --config=... --workdir=...
#
# The command gets --distributed=flags and who it is (see
# experiments/distributed_flags.py). Process 0 writes to the terminal as it is,
# the lines of the others begin with their number. When one process fails the
# others are ended, and the script returns its status.
set -euo pipefail

# How long processes may take to end by themselves after they were asked to.
grace_s=${GRACE_S:-10}

usage() {
  echo "usage: launch/local.sh N command [argument ...]" >&2
  exit 2
}

[[ $# -ge 2 && $1 =~ ^[1-9][0-9]*$ ]] || usage
count=$1
shift

# Asked of the kernel: nobody listens there now, and it goes on to others first.
port=$(python3 -c '
import socket
with socket.socket() as probe:
  probe.bind(("127.0.0.1", 0))
  print(probe.getsockname()[1])')

pids=()

# Sends a signal to what is left of each process group.
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

# Asks all to end, waits, and kills what did not; then leaves.
end_all() {
  trap '' INT TERM HUP
  signal_all "$1"
  local i
  for ((i = 0; i < 10 * grace_s; i++)); do
    any_left || break
    sleep 0.1
  done
  # Their children, too, who may not have listened.
  signal_all KILL
  exit "$2"
}

# A trap runs in the middle of `wait`, where the shell collects no dead child:
# so it only takes a note.
asked=
trap 'asked="INT 130"' INT
trap 'asked="TERM 143"' TERM
trap 'asked="HUP 129"' HUP

# Even kill -9 of this script must leave nobody behind: the guard reads the
# groups' numbers from a pipe that closes when the script is gone, however it
# went. After the word `done` there is nobody to end.
exec {guard}> >(
  trap '' INT TERM HUP
  groups=()
  while read -r line; do
    if [[ $line == 'done' ]]; then exit; fi
    groups+=("$line")
  done
  for group in "${groups[@]}"; do
    kill -s KILL -- "-$group" 2>/dev/null
  done
)

# Whoever reads last words must outlive the signal that asks for them.
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
  # Job control gives a process a group of its own, so that its children end
  # with it; without it the shell would make it deaf to SIGINT.
  set -m
  "$@" "${arguments[@]}" </dev/null >&"$out" 2>&"$err" {guard}>&- &
  set +m # Or the terminal would hear of each that ends.
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
  if [[ $asked ]]; then
    # An interrupt lets a run keep its last step and say how to go on.
    # shellcheck disable=SC2086
    end_all $asked
  elif ((status != 0)); then
    echo "launch/local.sh: a process ended with status $status" >&2
    end_all TERM "$status"
  fi
  left=$((left - 1))
done
echo 'done' >&"$guard"
