/*
 * network_test.h - `dpbench links network`: TCP between the machines of a job, by pairs. Nothing
 * is trained, and no communicator is opened. The ranks do the work, the launcher reads their
 * journals.
 *
 * The first rank of a machine measures for the machine. Pairs meet in the rounds of a tournament.
 * In a round each machine is of one pair at most, and all pairs are measured at once: first from
 * the lower machine to the higher, then back. The next round begins when all pairs are ready.
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

/* The rounds in which each of n machines meets each other once (the circle method). */
static inline uint32_t dpb_network_rounds(uint32_t n)
{
    return n % 2 == 0 ? n - 1 : n;
}

/* The machine that a machine meets in this round; n or more: none. */
static inline uint32_t dpb_network_opponent(uint32_t n, uint32_t round, uint32_t machine)
{
    const uint32_t m = dpb_network_rounds(n); /* odd; machine m, if there is one, stands still */
    if (machine == m)
        return round * (m / 2 + 1) % m; /* m / 2 + 1 is the inverse of 2 */
    const uint32_t other = (round + m - machine) % m;
    return other == machine ? m : other;
}

/* The first rank of a machine. */
uint32_t dpb_network_rank(const struct dpb_experiment *experiment, uint32_t machine);

/* Refuses settings that belong to `dpbench comm`, strategies without TCP, sizes that no message
 * has, and a job on one machine. */
dpb_status dpb_network_refuse(const struct dpb_experiment *experiment);

/* The life of a rank of `dpbench links network`, instead of dpb_rank_run. After a signal returns
 * DPB_INTERRUPTED at the next window of the pair, and leaves that direction unmeasured. */
dpb_status dpb_network_test_run(struct dpb_experiment *experiment);

#endif
