/*
 * predict_request.h - what `dpbench predict` is asked for: whose worker, over which links, for how
 * many.
 */
#ifndef DPB_STUDY_PREDICT_PREDICT_REQUEST_H
#define DPB_STUDY_PREDICT_PREDICT_REQUEST_H

#include <jansson.h>

#include "study/predict/predict.h"

struct dpb_accelerator; /* lib/accelerator/accelerator.h */
struct dpb_delay;       /* plan/delay.h */

enum { DPB_PREDICT_LIST = 32 };

/* A link between machines, or copying within one: as given, to be fitted to a result of `dpbench
 * comm`, or (between machines) the slowest of `dpbench links network`. */
struct dpb_predict_link {
    const char *name; /* "10Gbit,50us", or the file's name; @borrowed */
    struct dpb_cost cost;
    const json_t *comm;    /* @borrowed; NULL: none */
    const json_t *network; /* the same */
    bool exact;            /* made to have this cost: no data sheet's, and no measurement's */
};

/* Lists without entries: the measured values; for workers 2, 4, .. 1024; for strategies all. */
struct dpb_predict_request {
    const char *path;                      /* of the result or profile */
    const json_t *result;                  /* @borrowed; NULL: a profile */
    const struct dpb_accelerator *profile; /* @borrowed; NULL: a result; both: emulated_run.h */
    double update_elements_per_s; /* with a profile: of a worker's optimizer; 0: the profile's */
    struct dpb_predict_link links[DPB_PREDICT_LIST];
    size_t n_links; /* >= 1 */
    double workers[DPB_PREDICT_LIST], buckets[DPB_PREDICT_LIST], batches[DPB_PREDICT_LIST];
    size_t n_workers, n_buckets, n_batches;
    const char *strategies[DPB_PREDICT_LIST];
    size_t n_strategies;
    uint32_t per_machine, servers;
    const struct dpb_delay *delay;  /* of each worker's step; @borrowed; NULL: none */
    const char *delay_text;         /* as it was given */
    const char *codec;              /* its name; @borrowed; NULL: none */
    const json_t *codec_comm;       /* of `dpbench comm`, which measured it; @borrowed */
    double uplink;                  /* R of R:1, as in struct dpb_prediction_case; 0: none */
    struct dpb_predict_link inside; /* within a machine; used where per_machine > 1 */
    struct dpb_cost host; /* for bytes that a worker's thread passes to a link; each message */
};

#endif
