#!/bin/bash
# Submitted by xfbench; job.json describes what it measures.
#SBATCH --job-name=xfbench-0123456789ab
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=12
#SBATCH --time=60
#SBATCH "--chdir=/scratch/my jobs"
#SBATCH --output=job.stdout
#SBATCH --error=job.stderr
#SBATCH --no-requeue
#SBATCH --partition=normal
#SBATCH --account=TG-1
#SBATCH --exclusive
export XFBENCH_HOME='/home/me/it'"'"'s mine'
/opt/python -P -m xfbench run --job '/scratch/my jobs/job.json'
status=$?
echo "$status" > job.status.partial && mv job.status.partial job.status
exit "$status"
