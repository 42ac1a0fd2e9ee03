#!/usr/bin/env bash
# For a stage that ended with STATUS: pass it on, but for 75 (told to stop, its checkpoint is saved) inside a running
# Slurm job, where the job is put into the queue again: the same job, so that no retry is spent. A job that someone
# cancelled is not RUNNING any more, and stays cancelled.
status=$1
if [ "$status" = 75 ] && [ -n "${SLURM_JOB_ID:-}" ] && [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; then
  echo "stopped with its checkpoint saved: job $SLURM_JOB_ID goes back into the queue" >&2
  scontrol requeue "$SLURM_JOB_ID" && sleep 600 # Slurm ends this job within seconds
fi
exit "$status"
