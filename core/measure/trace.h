/*
 * trace.h - the last spans of a rank, for the file of run.trace: the parts of its steps, the
 * batches that helper threads load, the way of each bucket, evaluations and checkpoints.
 *
 * A rank writes its spans into a ring behind the records of its journal. The launcher makes the
 * file from these rings when the job is over (record/trace_file.h), also after a rank's death.
 *
 * Without run.trace there is no ring, and each function of this header is one branch. One trace a
 * process; any thread may add spans. Nothing here allocates.
 */
#ifndef DPB_CORE_MEASURE_TRACE_H
#define DPB_CORE_MEASURE_TRACE_H

#include "base/log.h"
#include "base/settings.h"
#include "dpbench/host.h"

/* Room of the ring for each step of run.trace_steps. */
enum { DPB_TRACE_SPANS = 4096 };

/* The kind of a span, and the meaning of its `number`. */
typedef enum dpb_trace_kind {
    DPB_TRACE_STEP,                         /* the index of its record in the journal */
    DPB_TRACE_PART,                         /* plus a dpb_part; 0 */
    DPB_TRACE_EXPOSED = DPB_TRACE_PART + 4, /* communicator code on the loop's thread; 0 */
    DPB_TRACE_OP,                           /* of the device, with run.profile; a node */
    DPB_TRACE_EVALUATE,                     /* the step before which it is */
    DPB_TRACE_CHECKPOINT,                   /* likewise */
    DPB_TRACE_READY,                        /* a moment: core hands the bucket over; the bucket */
    DPB_TRACE_LOAD,                         /* a helper of the training set; the batch */
    DPB_TRACE_LOAD_TEST,                    /* ... of the test set; the batch */
    DPB_TRACE_PHASE,                        /* plus a dpb_phase; the bucket */
    DPB_TRACE_KINDS = DPB_TRACE_PHASE + DPB_PHASES
} dpb_trace_kind;

struct dpb_trace_span {
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC of the rank's machine */
    uint64_t number;
    uint32_t kind; /* dpb_trace_kind */
    /* LOAD, LOAD_TEST: the helper's number. PHASE of a worker: the record to which the account adds
     * the span. With comm.late this is not the record of the step in which the span began. */
    uint32_t of;
};

/* Span i stands at i modulo the capacity. The rank raises `n` (release) after span n is whole; a
 * rank that dies while it writes spoils the oldest span alone. */
struct dpb_trace_ring {
    uint64_t n;
    struct dpb_trace_span spans[];
};

/* Without run.trace: NULL. */
extern struct dpb_trace_ring *dpb_trace_ring;

/* Spans that the ring has room for, and its bytes; 0: the settings ask for no trace. */
uint64_t dpb_trace_capacity(const struct dpb_settings *settings);
size_t dpb_trace_bytes(const struct dpb_settings *settings);

/* `ring` is zeroed and @borrowed until close; NULL: no trace. No other thread traces meanwhile. */
void dpb_trace_open(struct dpb_trace_ring *ring, uint64_t capacity);
void dpb_trace_close(void);
/* Spans that come later are left out: the training is over. */
void dpb_trace_stop(void);

void dpb_trace_write(struct dpb_trace_span span);

static inline void dpb_trace(uint32_t kind, uint64_t number, int64_t begin_ns, int64_t end_ns)
{
    if (dpb_trace_ring)
        dpb_trace_write((struct dpb_trace_span){begin_ns, end_ns, number, kind, 0});
}

/* Begins a span. Pass the result to dpb_trace_end. */
static inline int64_t dpb_trace_begin(void)
{
    return dpb_trace_ring ? dpb_now_ns() : 0;
}
static inline void dpb_trace_end(uint32_t kind, uint32_t of, uint64_t number, int64_t begun_ns)
{
    if (dpb_trace_ring)
        dpb_trace_write((struct dpb_trace_span){begun_ns, dpb_now_ns(), number, kind, of});
}
/* A moment. */
static inline void dpb_trace_mark(uint32_t kind, uint64_t number)
{
    if (dpb_trace_ring) {
        const int64_t now_ns = dpb_now_ns();
        dpb_trace_write((struct dpb_trace_span){now_ns, now_ns, number, kind, 0});
    }
}

#endif
