/* lead.c - see lead.h. */
#include "proof/lead.h"

/* Of the clock, read on two processors. */
static const int64_t resolution_ns = 100000;

/* Those whose step k began first and last; false: none has it. */
static bool find_ends(const struct dpb_journal *const *journals, uint32_t n_workers, uint64_t k,
                      uint32_t *first, uint32_t *last)
{
    *first = *last = n_workers;
    for (uint32_t w = 0; w < n_workers; w++) {
        if (!journals[w] || k >= journals[w]->n_records)
            continue;
        const int64_t begin_ns = journals[w]->records[k].begin_ns;
        if (*first == n_workers || begin_ns < journals[*first]->records[k].begin_ns)
            *first = w;
        if (*last == n_workers || begin_ns > journals[*last]->records[k].begin_ns)
            *last = w;
    }
    return *first < n_workers;
}

bool dpb_lead_kept(const struct dpb_journal *const *journals, uint32_t n_workers,
                   struct dpb_lead_broken *broken)
{
    uint32_t ahead, behind, any;
    if (!find_ends(journals, n_workers, 0, &any, &behind))
        return true;
    const uint32_t within = journals[any]->within;
    if (within == 0 || journals[any]->by_device) /* a device's times are of its own clock */
        return true;
    for (uint64_t k = within; find_ends(journals, n_workers, k, &ahead, &any); k++) {
        (void)find_ends(journals, n_workers, k - within, &any, &behind);
        const int64_t early_ns =
            journals[behind]->records[k - within].begin_ns - journals[ahead]->records[k].begin_ns;
        if (early_ns <= resolution_ns)
            continue;
        *broken = (struct dpb_lead_broken){ahead, behind, within, journals[ahead]->first_step + k,
                                           early_ns};
        return false;
    }
    return true;
}
