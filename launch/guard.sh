#!/usr/bin/env bash
# Kills process groups once the process that writes to its input is gone.
#
# A line with the id of a process group adds the group; a line with a minus sign
# before the id removes it, because the group has ended and the kernel may give
# its id to others. The input ends when the writer exits for any reason, kill -9
# included; the groups that are left are then killed.
trap '' INT TERM HUP

declare -A groups
while read -r line; do
  if [[ $line == -* ]]; then
    unset "groups[${line#-}]"
  else
    groups[$line]=1
  fi
done
for group in "${!groups[@]}"; do
  kill -s KILL -- "-$group" 2>/dev/null
done
