/*
 * collectives.h - the operations of `dpbench comm` beside the all-reduce (comm_test.operation). In
 * training every exchange is an all-reduce: only strategies that are to be measured so need this
 * header.
 *
 * A strategy lists its operations in dpb_comm_ops.collectives, and learns the one to do by
 * dpb_comm_args.operation. An exchange then has the same hooks, buckets and events. Nothing is
 * updated, and the optimizer is not called. Core makes the length of every bucket a multiple of the
 * number of workers W. A bucket has W equal slices, slice r of worker r. In each bucket, on worker
 * r, when *done fires:
 *
 *     reduce_scatter  slice r of the gradients is the sum over the workers, others are undefined
 *     all_gather      slice q of the gradients is that of worker q
 *     broadcast       the gradients are those of worker 0
 *     all_to_all      slice q of the *weights* is slice r of worker q's gradients: out of place, so
 *                     weights and gradients have one type
 */
#ifndef DPBENCH_COLLECTIVES_H
#define DPBENCH_COLLECTIVES_H

typedef enum dpb_collective {
    DPB_ALL_REDUCE, /* every strategy has it, and does not list it */
    DPB_REDUCE_SCATTER,
    DPB_ALL_GATHER,
    DPB_BROADCAST,
    DPB_ALL_TO_ALL
} dpb_collective;

/* For dpb_comm_ops.collectives: all beside the all-reduce. */
#define DPB_COLLECTIVES_ALL \
    (1u << DPB_REDUCE_SCATTER | 1u << DPB_ALL_GATHER | 1u << DPB_BROADCAST | 1u << DPB_ALL_TO_ALL)

#endif
