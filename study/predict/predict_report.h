/*
 * predict_report.h - `dpbench predict`: from the result of one worker, or the profile of an
 * accelerator, to predictions for many, as one JSON document, schema dpbench.predict/1, and its
 * tables. docs/predicting.md has the fields.
 */
#ifndef DPB_STUDY_PREDICT_PREDICT_REPORT_H
#define DPB_STUDY_PREDICT_PREDICT_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "study/predict/predict.h"

enum { DPB_PREDICT_LIST = 32 };

/* A link between machines, or copying within one: as given, to be fitted to a result of `dpbench
 * comm`, or (between machines) the slowest of `dpbench links network`. */
struct dpb_predict_link {
    const char *name; /* "10Gbit,50us", or the file's name; @borrowed */
    struct dpb_cost cost;
    const json_t *comm;    /* @borrowed; NULL: none */
    const json_t *network; /* the same */
};

/* Lists without entries: the measured values; for workers 2, 4, .. 1024; for strategies all. */
struct dpb_predict_request {
    const char *path;                      /* of the result or profile */
    const json_t *result;                  /* @borrowed; NULL: a profile */
    const struct dpb_accelerator *profile; /* @borrowed; NULL: a result */
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

/* *document is @owned. DPB_USAGE, by name, for a request that cannot be predicted. */
dpb_status dpb_predict_report_make(const struct dpb_predict_request *request, json_t **document);
void dpb_predict_report_print(const json_t *document, FILE *out);

#endif
