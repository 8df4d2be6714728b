/*
 * network_test.h - `dpbench links network`: TCP between the machines of a job, by pairs. Nothing
 * is trained, and no communicator is opened. The ranks do the work, the launcher reads their
 * journals.
 *
 * The first rank of a machine measures for the machine. A pair is measured one way, then the other,
 * while all other ranks wait, so a pair has the network to itself.
 */
#ifndef DPB_LINKS_NETWORK_TEST_H
#define DPB_LINKS_NETWORK_TEST_H

#include "links/links.h"
#include "plan/experiment.h"

/* From the journal's machine to another. */
struct dpb_network_row {
    bool measured; /* the rest holds */
    struct dpb_links_value latency, rate[DPB_LINKS_SIZES];
};

/* The journal of a machine's first rank; zeroed memory. */
struct dpb_network_journal {
    struct dpb_network_row rows[DPB_JOB_RANKS]; /* by machine */
};

/* The first rank of a machine. */
uint32_t dpb_network_rank(const struct dpb_experiment *experiment, uint32_t machine);

/* Refuses settings that belong to `dpbench comm`, sizes that no message has, and a job on one
 * machine. */
dpb_status dpb_network_refuse(const struct dpb_experiment *experiment);

/* The life of a rank of `dpbench links network`, instead of dpb_rank_run. After a signal returns
 * DPB_INTERRUPTED at the next window of the pair, and leaves that direction unmeasured. */
dpb_status dpb_network_test_run(struct dpb_experiment *experiment);

#endif
