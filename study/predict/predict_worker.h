/*
 * predict_worker.h - the one worker that predictions start from, read from the result of its run.
 */
#ifndef DPB_STUDY_PREDICT_PREDICT_WORKER_H
#define DPB_STUDY_PREDICT_PREDICT_WORKER_H

#include <jansson.h>

#include "study/predict/predict.h"

struct dpb_predict_worker {
    const char *path;     /* of the result; @borrowed */
    const json_t *result; /* @borrowed */
    struct dpb_measured measured;
    double *ready_s, *ready_bytes, *factors;    /* @owned */
    double step_s, batch, bucket_bytes, spread; /* spread: half the 95 % interval's logarithm */
    double weights;                             /* bytes of weights over those of gradients */
    bool helper, even; /* a core for communication; no ready times, so even over backward */
};

/* DPB_USAGE, by name, for a run that allows no prediction. dpb_predict_release either way. */
dpb_status dpb_predict_read(const char *path, const json_t *result,
                            struct dpb_predict_worker *worker);
void dpb_predict_release(struct dpb_predict_worker *worker);

#endif
