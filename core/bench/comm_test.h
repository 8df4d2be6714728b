/*
 * comm_test.h - `dpbench comm`: a communicator alone, for a series of layouts, many exchanges each,
 * without data and optimizer. There is no device but for strategies that work in its memory
 * (dpb_comm_needs.runtime). The launcher plans the layouts and reads the journals, the ranks do the
 * rest.
 *
 * Before each exchange every worker writes a new pattern (pattern.h) into its gradients, and the
 * workers meet. Afterwards each worker checks all elements. Only the time between belongs to a
 * sample. Where the strategy reduces in place (the workers' own gradient arenas hold the sum) the
 * optimizer's stand-in does nothing, else it copies the sum to the weights. So the timed part ends
 * when every worker has the sum.
 */
#ifndef DPB_CORE_BENCH_COMM_TEST_H
#define DPB_CORE_BENCH_COMM_TEST_H

#include "measure/journal.h"
#include "plan/comm_points.h"

enum { DPB_COMM_LEAST = 5 }; /* timed exchanges of a layout, whatever comm_test.seconds is */

/* The largest number of the pattern (pattern.h) with which all sums and, where the workers meet by
 * exchanges, sums of sums are exact; DPB_UNSUPPORTED if no number is. */
dpb_status dpb_comm_largest(const struct dpb_experiment *experiment, bool by_memory,
                            uint32_t *largest);

/* The life of a rank of `dpbench comm`, instead of dpb_rank_run. After a point with a wrong
 * element, the rank that found the element returns DPB_VERIFICATION; after a signal,
 * DPB_INTERRUPTED. */
dpb_status dpb_comm_test_run(struct dpb_experiment *experiment);

#endif
