#!/bin/bash
#SBATCH --job-name=gpubench-ranks
#SBATCH --exclusive
#SBATCH --time=01:00:00
# The parallel benchmarks over all ranks of a job, into ranks/torchrun or ranks/srun by the launcher of the ranks.
# From a checkout of gpubench; further words are options of pytest:
#
#     sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 examples/fleet/slurm-ranks.sh torchrun
#     sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 examples/fleet/slurm-ranks.sh srun
set -eu
launcher=$1
shift
mkdir -p "ranks/$launcher"
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
measure=(pytest benchmarks/test_distributed.py --benchmark-only "--benchmark-json=ranks/$launcher/run.json" "$@")

# --cpu-bind=none: rank 0 also measures the baseline with all threads, which a rank bound to its core doesn't have.
case $launcher in
torchrun) # one task per node, which starts the ranks there
    exec srun --cpu-bind=none --ntasks="$SLURM_NNODES" --ntasks-per-node=1 \
        python -m torch.distributed.run --nnodes="$SLURM_NNODES" --nproc-per-node="$SLURM_NTASKS_PER_NODE" \
        --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:29400" -m "${measure[@]}"
    ;;
srun) # one task per rank, told what torchrun would tell it; gpubench and torch know a rank by TORCHELASTIC_RUN_ID
    export MASTER_ADDR MASTER_PORT=29400 TORCHELASTIC_RUN_ID=$SLURM_JOB_ID
    # shellcheck disable=SC2016  # each task expands them
    exec srun --cpu-bind=none bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID \
        LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE exec python -m "$@"' - "${measure[@]}"
    ;;
*)
    echo "launcher $launcher: expected torchrun or srun" >&2
    exit 2
    ;;
esac
