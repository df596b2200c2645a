#!/bin/bash
#SBATCH --job-name=gpubench
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# One run on one kind of machine, into fleet/NAME. The options of sbatch choose the machine, what follows NAME goes to
# gpubench run:
#
#     sbatch --gres=gpu:a100:1 slurm.sh a100 --require-device cuda
#     sbatch --partition=cpu --array=1-3 slurm.sh cpu              # three times, into fleet/cpu-1 to fleet/cpu-3
#
# --exclusive: other jobs on the node would be measured too. A job that was requeued, or is submitted again because its
# time was up, measures only what is missing.
set -eu
name=$1${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}
shift
if [ -e "fleet/$name/run.ledger.jsonl" ]; then
    exec gpubench run --resume "fleet/$name"
fi
exec gpubench run --builtin --machine "$name" -o "fleet/$name" "$@"
