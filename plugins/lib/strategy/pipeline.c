/* pipeline.c - see pipeline.h. */
#include "pipeline.h"

#include <assert.h>

dpb_status dpb_pipeline_open(struct dpb_pipeline *pipeline, const struct dpb_host *host,
                             void *strategy, const struct dpb_stage *stages, uint32_t n_stages,
                             const struct dpb_arenas *arenas)
{
    assert(n_stages <= DPB_PIPELINE_STAGES);
    *pipeline = (struct dpb_pipeline){.host = host,
                                      .strategy = strategy,
                                      .stages = stages,
                                      .n_stages = n_stages,
                                      .n_buckets = arenas->n_buckets,
                                      .bucket_elements = arenas->bucket_elements,
                                      .n_elements = arenas->layout.n_elements,
                                      .done = host->event->create()};
    return pipeline->done ? DPB_OK : DPB_NO_MEMORY;
}

void dpb_pipeline_close(struct dpb_pipeline *pipeline)
{
    if (pipeline->host)
        pipeline->host->event->destroy(pipeline->done);
}

void dpb_pipeline_begin(struct dpb_pipeline *pipeline)
{
    pipeline->host->event->reset(pipeline->done);
    for (uint32_t s = 0; s < pipeline->n_stages; s++)
        pipeline->next[s] = pipeline->at[s] = pipeline->left[s] = 0;
}

uint64_t dpb_pipeline_bucket_length(const struct dpb_pipeline *pipeline, uint64_t bucket)
{
    return dpb_pipeline_length_of(pipeline->n_elements, pipeline->bucket_elements, bucket);
}

/* A bucket reaches a stage when it has left the one before. */
static bool has_bucket(const struct dpb_pipeline *pipeline, uint32_t s)
{
    uint64_t limit = s == 0 ? pipeline->n_buckets : pipeline->left[s - 1];
    return pipeline->next[s] < limit;
}

static bool is_in_flight(const struct dpb_pipeline *pipeline, uint32_t s)
{
    return pipeline->left[s] < pipeline->next[s];
}

static const struct dpb_stage_flight *flight_of(const struct dpb_pipeline *pipeline, uint32_t s)
{
    return pipeline->flights ? pipeline->flights[s] : NULL;
}

/* All that the stage did to the bucket happened before. */
static void leave(struct dpb_pipeline *pipeline, uint32_t s)
{
    __atomic_store_n(&pipeline->left[s], pipeline->left[s] + 1, __ATOMIC_RELEASE);
}

uint64_t dpb_pipeline_count_done(const struct dpb_pipeline *pipeline)
{
    return __atomic_load_n(&pipeline->left[pipeline->n_stages - 1], __ATOMIC_ACQUIRE);
}

/* Does a piece of the stage's next bucket; false: that is not due. */
static bool work_on(struct dpb_pipeline *pipeline, uint32_t s, int64_t until_ns)
{
    const struct dpb_stage *stage = &pipeline->stages[s];
    uint64_t bucket = pipeline->next[s];
    if (!has_bucket(pipeline, s) || (stage->due && !stage->due(pipeline->strategy, bucket)))
        return false;
    struct dpb_stage_turn turn = {dpb_pipeline_bucket_length(pipeline, bucket), pipeline->at[s],
                                  until_ns};
    if (stage->work)
        stage->work(pipeline->strategy, bucket, &turn);
    pipeline->at[s] = turn.at;
    if (!stage->work || turn.at == turn.length) {
        pipeline->at[s] = 0;
        pipeline->next[s]++;
        if (!flight_of(pipeline, s))
            leave(pipeline, s);
    }
    return true;
}

static bool land(struct dpb_pipeline *pipeline, uint32_t s)
{
    const struct dpb_stage_flight *flight = flight_of(pipeline, s);
    uint64_t bucket = pipeline->left[s];
    if (!is_in_flight(pipeline, s) ||
        !pipeline->flight_ops->done(pipeline->strategy, bucket, flight))
        return false;
    pipeline->flight_ops->land(pipeline->strategy, bucket, flight);
    leave(pipeline, s);
    return true;
}

/* Does a piece of any stage that is due; false: none is. */
static bool work_on_something(struct dpb_pipeline *pipeline, int64_t until_ns)
{
    for (uint32_t s = 0; s < pipeline->n_stages; s++)
        if (work_on(pipeline, s, until_ns) || land(pipeline, s))
            return true;
    return false;
}

const struct dpb_stage_flight *dpb_pipeline_in_flight(const struct dpb_pipeline *pipeline,
                                                      uint64_t *bucket)
{
    for (uint32_t s = pipeline->n_stages; s-- > 0;)
        if (is_in_flight(pipeline, s)) {
            *bucket = pipeline->left[s];
            return flight_of(pipeline, s);
        }
    return NULL;
}

static bool has_needs(const struct dpb_pipeline *pipeline)
{
    return pipeline->needs.met < pipeline->needs.asked;
}

static dpb_status wait_for_something(struct dpb_pipeline *pipeline)
{
    if (has_needs(pipeline))
        return pipeline->needs.wait ? pipeline->needs.wait(pipeline->strategy) : DPB_OK;
    for (uint32_t s = pipeline->n_stages; s-- > 0;) {
        if (is_in_flight(pipeline, s))
            return pipeline->flight_ops->wait(pipeline->strategy, pipeline->left[s],
                                              flight_of(pipeline, s));
        if (has_bucket(pipeline, s))
            return pipeline->stages[s].wait(pipeline->strategy, pipeline->next[s]);
    }
    return DPB_OK;
}

/* Does a piece of the work beside the stages, and a piece of the work that is due in them. */
static dpb_status work_on_all(struct dpb_pipeline *pipeline, int64_t until_ns, bool *worked)
{
    bool moved = false;
    if (pipeline->move)
        DPB_TRY(pipeline->move(pipeline->strategy, until_ns, &moved));
    *worked = work_on_something(pipeline, until_ns) || moved;
    return DPB_OK;
}

dpb_status dpb_pipeline_progress(struct dpb_pipeline *pipeline, int64_t budget_ns)
{
    const uint64_t *last = &pipeline->left[pipeline->n_stages - 1], before = *last;
    const uint64_t met = pipeline->needs.met;
    int64_t until_ns = budget_ns == DPB_FOREVER ? INT64_MAX : pipeline->host->now_ns() + budget_ns;
    bool worked = true;
    if (before == pipeline->n_buckets && !has_needs(pipeline))
        return DPB_OK;
    while (worked) {
        DPB_TRY(work_on_all(pipeline, until_ns, &worked));
        if (*last == pipeline->n_buckets && before < *last) {
            pipeline->host->event->signal(pipeline->done);
            return DPB_OK;
        }
        if (budget_ns == DPB_FOREVER
                ? pipeline->tells_each && (*last > before || pipeline->needs.met > met)
                : pipeline->host->now_ns() >= until_ns)
            return DPB_OK;
    }
    return budget_ns == DPB_FOREVER ? wait_for_something(pipeline) : DPB_OK;
}
