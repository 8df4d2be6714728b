/*
 * journal.h - a rank's measurements, in memory shared with the launcher. So the launcher can make a
 * result when the rank has died. Times are nanoseconds.
 */
#ifndef DPB_CORE_MEASURE_JOURNAL_H
#define DPB_CORE_MEASURE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/settings.h"
#include "dpbench/data.h"
#include "dpbench/device.h"
#include "dpbench/host.h"
#include "machine/gpu.h"
#include "machine/load.h"
#include "machine/tcp.h"

enum {
    DPB_JOURNAL_EVALS = 4096,
    DPB_JOURNAL_PROFILE = 8192,
    DPB_JOURNAL_CORES = 1024,
    DPB_JOURNAL_AGES = 4096,
    DPB_JOURNAL_READY = 4096,
    DPB_LABEL_BYTES = 32 /* of a contract's word: plan/contract.h */
};

/* One step of one rank, its times divided by run.dilation. data_wait + forward + delay + backward +
 * optimizer + comm_exposed = step. */
struct dpb_record {
    int64_t begin_ns;  /* CLOCK_MONOTONIC, divided likewise */
    int64_t paused_ns; /* between the step before and this one: an evaluation, a checkpoint */
    int64_t step_ns;   /* to the begin of the next step or a pause; the last: to its end */
    int64_t data_wait_ns, forward_ns, delay_ns, backward_ns, optimizer_ns;
    int64_t comm_exposed_ns, comm_hidden_ns, comm_wait_peer_ns, comm_exposed_wait_ns;
    int64_t missed_ns; /* of step_ns, not divided: this process was stopped or frozen */
    uint64_t comm_bytes;
    double loss;      /* mean of this rank's samples */
    uint64_t correct; /* labels of them, as in struct dpb_outcome */
    bool has_no_loss; /* forward was stopped: gradients would have been dropped */
    double learning_rate;
};

/* A moment of the backward pass, over the timed steps. */
struct dpb_ready {
    uint64_t elements; /* elements of the gradient that are final by then */
    uint64_t steps;
    int64_t sum_ns; /* since the step began, communicator code left out */
};

struct dpb_eval {
    uint64_t step;                              /* steps of training done before it */
    uint64_t epoch;                             /* epochs begun */
    uint64_t trained_samples;                   /* over all workers */
    int64_t trained_ns;                         /* evaluations and checkpoints left out */
    double loss;                                /* mean over all samples of the test set */
    uint64_t correct, in_top5, samples, labels; /* the first two count labels */
};

/* A row of run.profile; names are cut off where they are longer. */
struct dpb_profile_entry {
    char layer[64], op[32], what[48];
    uint32_t node; /* of the graph */
    bool backward;
    uint64_t calls;
    int64_t ns;
    double flops, bytes;
};

/* What a rank does. DPB_SPENT_STEPS: warm-up and timed steps. */
typedef enum dpb_spent {
    DPB_SPENT_START, /* the process, cores, data, the model's weights */
    DPB_SPENT_CONNECT,
    DPB_SPENT_COMPILE, /* the device, and what it tunes */
    DPB_SPENT_PROOF,
    DPB_SPENT_STEPS,
    DPB_SPENT_EVAL,
    DPB_SPENT_CHECKPOINTS,
    DPB_SPENT_END,
    DPB_SPENT_PARTS
} dpb_spent;

typedef enum dpb_verdict {
    DPB_VERDICT_SKIPPED,
    DPB_VERDICT_PASS,
    DPB_VERDICT_FAIL,
    DPB_VERDICT_NOT_APPLICABLE
} dpb_verdict;

/* The rank writes. It raises n_records and n_evals (release) after an entry is complete. */
struct dpb_journal {
    uint64_t capacity;   /* of records[] */
    uint64_t n_records;  /* complete ones, from first_step: warm-up included */
    uint64_t unrecorded; /* steps beyond the capacity */
    int64_t ended_ns;    /* end of the last step, also of an unrecorded one */
    uint64_t first_step; /* of this run; not 0 where it continues a training */
    uint64_t timed_from; /* first timed record; UINT64_MAX while in warm-up */
    double dilation;     /* of the records' times, of ready[] and of coding; 0 is as 1 */
    bool steady;         /* the gate opened before its limit */
    bool gated;          /* the gate was asked at all */
    bool by_device; /* the records' times are the device's own; data_wait is when it was idle */
    uint32_t verdict_pattern, verdict_exchange, verdict_replicas; /* dpb_verdict */
    uint32_t verdict_after, verdict_steps;
    char steps_reason[64];             /* why verdict_steps is no pass and no fail; else "" */
    char consistency[DPB_LABEL_BYTES]; /* of the strategy's contract; "": not planned yet */
    uint64_t checksum;                 /* of the published weights at the end */
    uint64_t parameters, macs_per_sample, classes, steps_per_epoch, dropped_samples;
    uint64_t tokens; /* of a sample; 0: samples are images */
    uint64_t dropped_spans;
    /* No worker begins a step before all have begun the step so many before; 0: not promised. */
    uint32_t within;
    bool apart; /* workers neither begin to time nor end on a common step */
    /* Ages of this worker's gradients, one a server and timed step: ages[i] counts age i, the last
     * entry that age or more. */
    uint64_t ages[DPB_JOURNAL_AGES], sum_of_ages, most_age;
    uint64_t dropped;         /* likewise: gradients not applied */
    struct dpb_coding coding; /* of the coded_steps timed steps that have a record */
    uint64_t coded_steps;
    uint64_t n_ready; /* 0: gradients become final in the device's time, not the host's */
    struct dpb_ready ready[DPB_JOURNAL_READY]; /* elements rise */
    uint32_t threads;                          /* compute threads of this rank */
    uint32_t place_threads;                    /* of one learner alone in its place */
    uint32_t n_cores; /* hardware threads that the rank is bound to; 0: not bound */
    uint16_t cores[DPB_JOURNAL_CORES];
    bool oversubscribed;
    uint64_t peak_memory_bytes;
    uint64_t weights_bytes, gradients_bytes, state_bytes, scratch_bytes; /* its arenas */
    double loss_scale;                                                   /* of fp16, as it is now */
    uint64_t skipped_steps;      /* because of overflow, of this run */
    struct dpb_load load;        /* rank 0: around the timed steps */
    struct dpb_gpu_use gpu;      /* of the rank's device, around the timed steps */
    struct dpb_data_counts data; /* of the rank's source, at the end */
    /* From the first timed step to the end, pauses included: processor time of threads that are not
     * core's, and the time that passed. */
    int64_t others_cpu_ns, others_wall_ns;
    /* Device `emulated`, over the same time (servers: over their lives): how long the rank's
     * threads waited for a core, added up; and how late the machine let gradients be final, by the
     * latest of each step, added up. */
    int64_t run_delay_ns, run_delay_of_ns, late_ns;
    int64_t start_ns; /* opening, proving and loading: until the first step */
    /* Of each dpb_spent, from opened_ns to spent_from_ns; from then on it is `spending`. */
    int64_t opened_ns, spent_from_ns, spent_ns[DPB_SPENT_PARTS];
    dpb_spent spending;
    uint64_t node_bytes; /* memory of the NUMA nodes of `cores`; 0: not bound, or not known */
    uint32_t n_tcp;
    struct dpb_tcp_peer tcp[DPB_TCP_TABLE]; /* connections of the rank's process, at the end */
    uint64_t n_evals;
    uint64_t target_met; /* number of the evaluation that met eval.target, from 1; 0: none has */
    struct dpb_eval evals[DPB_JOURNAL_EVALS];
    struct dpb_profile_limits limits; /* run.profile */
    char profile_how[160];            /* "": by the clock around each op */
    uint64_t n_profile;               /* rows of profile[], at most its length */
    struct dpb_profile_entry profile[DPB_JOURNAL_PROFILE];
    struct dpb_record records[];
};

/* When a record began by the clock; not divided. */
static inline int64_t dpb_journal_began_ns(const struct dpb_journal *journal, uint64_t k)
{
    const int64_t begin_ns = journal->records[k].begin_ns;
    return journal->dilation > 1 ? (int64_t)((double)begin_ns * journal->dilation) : begin_ns;
}

static inline void dpb_coding_add(struct dpb_coding *sum, const struct dpb_coding *more)
{
    sum->encode_ns += more->encode_ns;
    sum->decode_ns += more->decode_ns;
    sum->elements += more->elements;
    sum->message_bytes += more->message_bytes;
    sum->gradients += more->gradients;
    sum->residual += more->residual;
}

/* ---- `dpbench comm` -------------------------------------------------------------------------- */

enum {
    DPB_COMM_POINTS = 128,     /* layouts */
    DPB_COMM_SAMPLES = 1 << 17 /* of a layout at most */
};

/* An exchange, by CLOCK_MONOTONIC of the rank: comparable within a machine. */
struct dpb_comm_sample {
    int64_t begin_ns, end_ns;
};

/* A worker's results for a point. The worker raises n_samples (release) after a sample is
 * complete. */
struct dpb_comm_record {
    uint64_t n_samples, n_buckets;
    uint64_t n_exchanges; /* warm-up included: all are checked */
    uint64_t n_wrong;     /* elements, over all exchanges */
    bool in_place;
};

/* The journal of a worker; sparse memory. */
struct dpb_comm_journal {
    uint64_t capacity; /* samples of a point */
    bool opened;       /* the fields below hold */
    bool by_memory;    /* the workers meet by flags: samples of all ranks have one clock */
    bool oversubscribed;
    uint32_t threads;
    struct dpb_load load; /* rank 0 */
    struct dpb_comm_record records[DPB_COMM_POINTS];
    struct dpb_comm_sample samples[]; /* [point * capacity + i] */
};

#endif
