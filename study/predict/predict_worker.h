/*
 * predict_worker.h - the one worker that predictions start from, read from the result of its run or
 * from the profile of an accelerator.
 */
#ifndef DPB_STUDY_PREDICT_PREDICT_WORKER_H
#define DPB_STUDY_PREDICT_PREDICT_WORKER_H

#include <jansson.h>

#include "lib/accelerator/accelerator.h"
#include "study/predict/lengths.h"
#include "study/predict/predict.h"

struct dpb_predict_worker {
    const char *path;                         /* of the result or the profile; @borrowed */
    const json_t *result;                     /* @borrowed; NULL: a profile */
    const char *model, *accelerator, *source; /* @borrowed; accelerator, source: NULL: a result */
    char kind[128];                           /* "published profile of V100", "run on device cpu" */
    const char
        *update; /* the time of updates is `measured`, of the `profile`, `given`, or `none` */
    struct dpb_measured measured;
    struct dpb_measured wide; /* with steps of a normal distribution that spreads by 4 % */
    struct dpb_lengths lengths, wide_lengths;   /* @owned; of both */
    double *ready_s, *ready_bytes;              /* @owned */
    double delay_s;                             /* mean, beside step_s */
    double step_s, batch, bucket_bytes, spread; /* spread: half the 95 % interval's logarithm */
    double weights;                             /* bytes of weights over those of gradients */
    size_t n_steps;                             /* that were timed; 0: a profile */
    bool helper, even; /* a core for communication; no ready times, so even over backward */
};

/* DPB_USAGE, by name, for a run that allows no prediction. dpb_predict_release either way. */
dpb_status dpb_predict_read(const char *path, const json_t *result,
                            struct dpb_predict_worker *worker);
/*
 * The same from a profile. Steps are a normal distribution of the profile's spread. An accelerator
 * computes by itself, so the host has a thread for communication. Gradients are fp32.
 * update_elements_per_s: the speed of a worker's optimizer; 0: the profile's, or updates take no
 * time.
 */
dpb_status dpb_predict_take_profile(const char *path, const struct dpb_accelerator *profile,
                                    double update_elements_per_s,
                                    struct dpb_predict_worker *worker);
/* Its steps are delayed, too, by anything but DPB_DELAY_NONE. Once. */
dpb_status dpb_predict_delay(struct dpb_predict_worker *worker, const struct dpb_delay *delay);
void dpb_predict_release(struct dpb_predict_worker *worker);

#endif
