#!/usr/bin/env bash
# Run a training command. If it ends with 75 (told to stop, its checkpoint is saved) in a running Slurm job, put the job
# back into the queue: the same job, so that no retry is spent. A job that someone cancelled is not RUNNING any more and
# stays cancelled. This stands between DVC and the stage ($LAUNCH), since DVC passes no exit status on.
"$@"
status=$?
if [ "$status" = 75 ] && [ -n "${SLURM_JOB_ID:-}" ] && [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; then
  echo "stopped with its checkpoint saved: job $SLURM_JOB_ID goes back into the queue" >&2
  scontrol requeue "$SLURM_JOB_ID" && sleep 600 # Slurm ends this job within seconds
fi
exit "$status"
