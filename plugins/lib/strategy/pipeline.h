/*
 * pipeline.h - a strategy as a row of stages through which every bucket goes in order.
 *
 * A stage decides when a bucket is due: all its inputs are there. It works on the bucket piece by
 * piece, and can wait for missing inputs. The pipeline runs all stages that are due, earlier stages
 * first, because other ranks wait for their results. When it may block, it waits in the stage
 * where the furthest bucket is stuck.
 *
 * A stage may have a flight: its work only enqueues work of a device. A bucket lands, and leaves
 * such a stage, when the device has finished. Until then the stage works on the next buckets.
 */
#ifndef DPB_PLUGINS_LIB_PIPELINE_H
#define DPB_PLUGINS_LIB_PIPELINE_H

#include "dpbench/host.h"

enum { DPB_PIPELINE_STAGES = 8 };

/* The work that a stage enqueues on a device. */
struct dpb_stage_flight {
    uint32_t kind;       /* the strategy's number for this kind of work */
    dpb_phase phase;     /* of the work, in the step's parts */
    const char *purpose; /* completes "waits for ..." in messages */
};

/* A stage's turn with a bucket. */
struct dpb_stage_turn {
    uint64_t length;  /* elements of the bucket */
    uint64_t at;      /* the first element that the stage has not worked on; `work` moves it */
    int64_t until_ns; /* `work` returns then */
};

struct dpb_stage {
    /* NULL: a bucket is due as soon as it has left the stage before. */
    bool (*due)(void *strategy, uint64_t bucket);
    /* Works on elements [at, length) of the bucket until at == length or `until_ns` has passed. It
     * is not called with at == length. NULL: there is nothing to do. */
    void (*work)(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn);
    /* Blocks until `due` may have become true; NULL if `due` is. */
    dpb_status (*wait)(void *strategy, uint64_t bucket);
};

/* The hooks of a strategy with flights. */
struct dpb_stage_flight_ops {
    bool (*done)(const void *strategy, uint64_t bucket, const struct dpb_stage_flight *flight);
    /* Called once for a bucket that is done, in the order of buckets. */
    void (*land)(void *strategy, uint64_t bucket, const struct dpb_stage_flight *flight);
    /* Returns when the bucket may be done, or after a short while. */
    dpb_status (*wait)(void *strategy, uint64_t bucket, const struct dpb_stage_flight *flight);
};

/* Weights on need (needs.h): work for `move`, between exchanges, too. */
struct dpb_pipeline_needs {
    uint64_t asked, met;                /* since dpb_pipeline_open */
    uint64_t at;                        /* elements of the next that are here */
    dpb_status (*wait)(void *strategy); /* until `move` may have work; NULL: it always has */
};

struct dpb_pipeline {
    const struct dpb_host *host;
    void *strategy;
    const struct dpb_stage *stages;
    uint32_t n_stages;
    uint64_t n_buckets, bucket_elements, n_elements;
    struct dpb_event *done; /* fires when the last stage has done the last bucket */
    /* By stage: the first bucket that it has not worked through, how far it is with that, and the
     * first bucket that has not left it. */
    uint64_t next[DPB_PIPELINE_STAGES], at[DPB_PIPELINE_STAGES], left[DPB_PIPELINE_STAGES];
    /* Set after dpb_pipeline_open if stages have flights: by stage (NULL: a bucket leaves the stage
     * once its work is finished), and the hooks. */
    const struct dpb_stage_flight *const *flights;
    const struct dpb_stage_flight_ops *flight_ops;
    /* Work beside the stages, such as a network's, or NULL; set after dpb_pipeline_open. The
     * pipeline calls it repeatedly, with the strategy, while it works. `move` does a piece of the
     * work that is possible now, without waiting. *moved: a piece was done, so a stage may be
     * due. */
    dpb_status (*move)(void *strategy, int64_t until_ns, bool *moved);
    /* Set after dpb_pipeline_open: without a budget `dpb_pipeline_progress` returns when a bucket
     * has left the last stage, or a need is met, too. */
    bool tells_each;
    struct dpb_pipeline_needs needs;
};

/* Sets up for the arenas; the event is @owned: dpb_pipeline_close. */
dpb_status dpb_pipeline_open(struct dpb_pipeline *pipeline, const struct dpb_host *host,
                             void *strategy, const struct dpb_stage *stages, uint32_t n_stages,
                             const struct dpb_arenas *arenas);
void dpb_pipeline_close(struct dpb_pipeline *pipeline);

void dpb_pipeline_begin(struct dpb_pipeline *pipeline); /* a new exchange: no bucket has begun */
/* The `progress` hook. */
dpb_status dpb_pipeline_progress(struct dpb_pipeline *pipeline, int64_t budget_ns);
/* Buckets of this exchange that have left the last stage; any thread. */
uint64_t dpb_pipeline_count_done(const struct dpb_pipeline *pipeline);
/* The furthest bucket that has yet to land, and how; NULL: there is none. */
const struct dpb_stage_flight *dpb_pipeline_in_flight(const struct dpb_pipeline *pipeline,
                                                      uint64_t *bucket);

/* Elements of a bucket: the last may have fewer than `bucket_elements`. */
static inline uint64_t dpb_pipeline_length_of(uint64_t n_elements, uint64_t bucket_elements,
                                              uint64_t bucket)
{
    const uint64_t rest = n_elements - bucket * bucket_elements;
    return rest < bucket_elements ? rest : bucket_elements;
}

uint64_t dpb_pipeline_bucket_length(const struct dpb_pipeline *pipeline, uint64_t bucket);

#endif
