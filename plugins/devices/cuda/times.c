/*
 * times.c - the parts of a step's time on the device, for a program that does not wait for the
 * host. Events mark where the main stream's work changes. They are read a step later, when all have
 * fired.
 *
 * The host's clock is tied to the device's once a step: when the host sees that a forward is done,
 * the mark behind it has just been passed.
 */
#include <stdlib.h>

#include "hooks.h"
#include "streams.h"

struct marks {
    struct {
        cudaEvent_t event;
        enum mark mark;
    } * at;
    size_t n, capacity;
};

struct times {
    struct marks steps[2]; /* the one under way and the one before, in turns */
    cudaEvent_t captured;  /* of MARK_CAPTURED: read before the next launch records it */
    uint32_t current;
    bool ended; /* the one before has an end: the current one's first mark */
    bool known; /* `done` was not told yet */
    struct dpb_device_times done;
};

dpb_status cuda_times_open(struct times **times)
{
    *times = calloc(1, sizeof **times);
    if (!*times)
        return cuda_no_memory();
    return CUDA_CALL(cudaEventCreate(&(*times)->captured));
}

void cuda_times_close(struct times *times)
{
    for (int i = 0; times && i < 2; i++) {
        for (size_t k = 0; k < times->steps[i].capacity; k++)
            cudaEventDestroy(times->steps[i].at[k].event);
        free(times->steps[i].at);
    }
    if (times && times->captured)
        cudaEventDestroy(times->captured);
    free(times);
}

/* Allocates in a program's first steps alone: later ones have as many marks. */
static dpb_status grow(struct marks *marks)
{
    if (marks->n < marks->capacity)
        return DPB_OK;
    void *more = realloc(marks->at, (marks->n + 1) * sizeof *marks->at);
    if (!more)
        return cuda_no_memory();
    marks->at = more;
    CUDA_TRY(cudaEventCreate(&marks->at[marks->n].event));
    marks->capacity++;
    return DPB_OK;
}

/* After a pause there is the mark alone that ended the step before it. */
bool cuda_times_run(const struct times *times)
{
    const struct marks *current = &times->steps[times->current];
    return current->n > 0 && current->at[0].mark == MARK_FORWARD;
}

bool cuda_times_idle(const struct times *times)
{
    const struct marks *current = &times->steps[times->current];
    return cuda_times_run(times) && current->at[current->n - 1].mark == MARK_IDLE;
}

dpb_status cuda_mark(const struct program *p, enum mark mark, bool first)
{
    struct times *times = p->times;
    if (first) {
        times->ended = cuda_times_run(times);
        times->current = !times->current;
        times->steps[times->current].n = 0;
    }
    struct marks *marks = &times->steps[times->current];
    DPB_TRY(grow(marks));
    marks->at[marks->n++].mark = mark;
    return mark == MARK_CAPTURED
               ? DPB_OK
               : CUDA_CALL(cudaEventRecord(marks->at[marks->n - 1].event, p->device->stream));
}

dpb_status cuda_capture_mark(const struct program *p)
{
    if (!p->times)
        return DPB_OK;
    return CUDA_CALL(
        cudaEventRecordWithFlags(p->times->captured, p->device->stream, cudaEventRecordExternal));
}

static cudaEvent_t event_of(const struct times *times, const struct marks *marks, size_t i)
{
    return marks->at[i].mark == MARK_CAPTURED ? times->captured : marks->at[i].event;
}

dpb_status cuda_elapsed(cudaEvent_t from, cudaEvent_t to, int64_t *ns)
{
    float ms = 0.0f;
    CUDA_TRY(cudaEventElapsedTime(&ms, from, to));
    *ns = (int64_t)((double)ms * 1e6);
    return DPB_OK;
}

/* The step of `marks`, which ended with `end`, at end_ns of the host's clock. */
static dpb_status add_up(const struct program *p, const struct marks *marks, cudaEvent_t end,
                         int64_t end_ns)
{
    struct dpb_device_times *done = &p->times->done;
    int64_t *const parts[] = {[MARK_IDLE] = &done->idle_ns,
                              [MARK_FORWARD] = &done->forward_ns,
                              [MARK_BACKWARD] = &done->backward_ns,
                              [MARK_EXCHANGE] = &done->exchange_ns,
                              [MARK_CAPTURED] = &done->exchange_ns};
    *done = (struct dpb_device_times){.exchange_begin_ns = end_ns};
    int64_t at_ns = end_ns;
    for (size_t i = marks->n; i-- > 0;) {
        int64_t ns;
        cudaEvent_t next = i + 1 < marks->n ? event_of(p->times, marks, i + 1) : end;
        DPB_TRY(cuda_elapsed(event_of(p->times, marks, i), next, &ns));
        *parts[marks->at[i].mark] += ns;
        at_ns -= ns;
        if (parts[marks->at[i].mark] == &done->exchange_ns && done->exchange_begin_ns == end_ns)
            done->exchange_begin_ns = at_ns;
    }
    done->begin_ns = at_ns;
    p->times->known = true;
    return DPB_OK;
}

dpb_status cuda_times_settle(const struct program *p)
{
    struct times *times = p->times;
    const struct marks *current = &times->steps[times->current];
    cudaEvent_t first = current->at[0].event, last = current->at[current->n - 1].event;
    int64_t ns;
    if (!times->ended)
        return DPB_OK;
    times->ended = false;
    CUDA_TRY(cudaEventSynchronize(last));
    int64_t now_ns = cuda_host->now_ns();
    DPB_TRY(cuda_elapsed(first, last, &ns));
    return add_up(p, &times->steps[!times->current], first, now_ns - ns);
}

bool cuda_times(void *program, struct dpb_device_times *told)
{
    const struct program *p = program;
    if (!p->times || !p->times->known)
        return false;
    *told = p->times->done;
    p->times->known = false;
    return true;
}

/* ---- one piece of work by itself ------------------------------------------------------------- */

dpb_status cuda_time_runs(const struct program *p, const struct dpb_node *node, const char *what,
                          dpb_status (*work)(const void *context), const void *context, int runs,
                          const cudaEvent_t ends[2], float *ms)
{
    cudaStream_t stream = p->device->stream;
    DPB_TRY(work(context));
    DPB_TRY(cuda_check(p, node, "cudaEventRecord", cudaEventRecord(ends[0], stream)));
    for (int i = 0; i < runs; i++)
        DPB_TRY(work(context));
    DPB_TRY(cuda_check(p, node, "cudaEventRecord", cudaEventRecord(ends[1], stream)));
    DPB_TRY(cuda_check(p, node, what, cudaEventSynchronize(ends[1])));
    DPB_TRY(
        cuda_check(p, node, "cudaEventElapsedTime", cudaEventElapsedTime(ms, ends[0], ends[1])));
    *ms /= (float)runs;
    return DPB_OK;
}
