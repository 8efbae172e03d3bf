#!/bin/bash
# slurm.sh FOLDER COMMAND...: runs a Slurm of one node as root in FOLDER while the commands run.  Each command is the
# rest of an srun line.  Prints their output, and "status N" after each, or the reason why there is no Slurm.
folder=$1
shift
host=$(hostname -s)
port=$((20000 + RANDOM % 12000)) # below the kernel's range of ephemeral ports
mkdir -p "$folder/state" "$folder/spool"
export SLURM_CONF=$folder/slurm.conf
cat >"$SLURM_CONF" <<END
ClusterName=tutti
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmctldPort=$port
SlurmdPort=$((port + 1))
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
END
slurmctld -f "$SLURM_CONF" -D >"$folder/slurmctld.out" 2>&1 &
controller=$!
slurmd -f "$SLURM_CONF" -D >"$folder/slurmd.out" 2>&1 &
daemon=$!
# Runs one step at a time: a step's own process reports its end to the controller, and slurmd waits for that process.
trap 'kill $daemon 2>/dev/null; wait $daemon; kill $controller 2>/dev/null; wait $controller' EXIT
idle() { timeout 5 sinfo -h -o %t 2>/dev/null | grep -q idle; }
await_idle() {
  for _ in $(seq 300); do
    idle && return
    kill -0 $daemon $controller 2>/dev/null || return
    sleep 0.2
  done
}
await_idle
if ! idle; then
  echo "Slurm does not start here: $(grep -h error "$folder"/slurm*.out | tail -n 3)"
  exit
fi
for command; do
  await_idle # a job may be refused while another one is ending
  # shellcheck disable=SC2086 # a line of words
  timeout 60 srun --overcommit $command 2>&1
  echo "status $?"
done
