/*
 * core_latency.h - whether the latency between the job's cores changed within a sweep. A hypervisor
 * moves virtual processors between caches; a strategy may then be the faster one in some blocks,
 * and the slower one in the others.
 */
#ifndef DPB_STUDY_DOCUMENT_CORE_LATENCY_H
#define DPB_STUDY_DOCUMENT_CORE_LATENCY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Two kinds of moments: the longest latency of the near ones is at most twice the shortest. */
struct dpb_core_latency {
    bool turns; /* the moments are turns, else starts of runs */
    size_t n_near, n_far;
    double near_ns, far_ns; /* means */
    double most_near_ns;
};

/* Of the runs on the cores and the machine of the first run. False: it did not change, or not in a
 * twentieth of the moments, two at least. */
bool dpb_core_latency_changed(const json_t *document, struct dpb_core_latency *latency);
/* Whether the median latency of one of two documents (runs or sweeps) is more than twice the
 * other's. */
bool dpb_core_latency_differ(const json_t *a, const json_t *b, double *ns_a, double *ns_b);
/* A copy of a sweep's row with the turns alone that were near, or far. @owned. */
json_t *dpb_core_latency_part(const json_t *row, const struct dpb_core_latency *latency, bool near);

#endif
