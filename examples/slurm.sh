#!/bin/bash
# Train the digits on two nodes of a SLURM cluster, one process on each:
#
#     sbatch examples/slurm.sh                              from the folder of the checkout
#     sbatch examples/slurm.sh --epochs 5 --out runs/five   with options of examples/digits.py
#
# nodes has to be the script's --num-nodes, and ntasks-per-node its --devices; another number is refused at once.
# A minute before its time is up the job is sent USR1: it saves between two steps, is queued again, and goes on.
#
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:20:00
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.txt

set -euo pipefail
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
srun "${PYTHON:-python}" examples/digits.py --strategy ddp --num-nodes 2 --devices 1 "$@"
