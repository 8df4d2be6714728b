/*
 * settings.h - core's own options, section by section, as typed values. The tables in settings.c
 * are the only list of them. Plugins' options live in their plugins.
 */
#ifndef DPB_CORE_BASE_SETTINGS_H
#define DPB_CORE_BASE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "dpbench/option.h"
#include "dpbench/status.h"

struct dpb_config;

enum { DPB_JOB_RANKS = 1024 }; /* of a job at most, workers and servers together */

typedef enum dpb_mode {
    DPB_MODE_TRAIN,
    DPB_MODE_FORWARD,
    DPB_MODE_EVALUATE, /* `dpbench eval` */
    DPB_MODE_COMM,     /* `dpbench comm` */
    DPB_MODE_NETWORK,  /* `dpbench links network` */
    DPB_MODE_DATA      /* `dpbench data` of all ranks */
} dpb_mode;

/* Whether there is a training, or a part of one. */
static inline bool dpb_mode_has_steps(int mode)
{
    return mode < DPB_MODE_COMM;
}
typedef enum dpb_too_large { DPB_TOO_LARGE_REFUSE, DPB_TOO_LARGE_WARN } dpb_too_large;
typedef enum dpb_nan { DPB_NAN_STOP, DPB_NAN_CONTINUE } dpb_nan;
typedef enum dpb_optimizer_kind {
    DPB_SGD,
    DPB_ADAGRAD,
    DPB_ADAM,
    DPB_ADAMW,
    DPB_RMSPROP,
    DPB_LARS,
    DPB_LAMB
} dpb_optimizer_kind;
typedef enum dpb_schedule_kind {
    DPB_CONSTANT,
    DPB_STEPWISE,
    DPB_COSINE,
    DPB_POLYNOMIAL,
    DPB_PIECEWISE
} dpb_schedule_kind;

/* The source of the training's batches. */
typedef enum dpb_data_place { DPB_PLACE_HOST, DPB_PLACE_DEVICE } dpb_data_place;

/* Where checkpoints between steps are. */
typedef enum dpb_checkpoint_place { DPB_CHECKPOINT_FILE, DPB_CHECKPOINT_PEER } dpb_checkpoint_place;

/* How the workers meet before an exchange is timed. */
typedef enum dpb_barrier { DPB_BARRIER_AUTO, DPB_BARRIER_MEMORY, DPB_BARRIER_EXCHANGE } dpb_barrier;

/* Which evaluations must reach the target. */
typedef enum dpb_criterion { DPB_LAST, DPB_MEDIAN5 } dpb_criterion;

struct dpb_run_settings {
    const char *name, *results, *delay, *delay_ranks, *trace;
    double dilation;
    int64_t workers, learners, servers, batch, global_batch, accumulate;
    int64_t steps, epochs, seconds_ns; /* exactly one is not 0 */
    int64_t warmup_steps, seed, comm_cores, timeout_ns, stall_warning_ns, port, restart, rejoin_ns;
    int64_t steady_window, steady_windows, steady_limit_ns, trace_steps, monitor_ns;
    double steady_drift, steady_spread;
    double loss_scale;                /* 0: automatic */
    int mode, precision, memory, nan; /* dpb_mode, dpb_precision, dpb_too_large, dpb_nan */
    int launch;                       /* core/launch/environment.h reads it before all others */
    bool prove, require_steady, profile, survive, conform, open;
};

struct dpb_optimizer_settings {
    int kind;
    double learning_rate, momentum, weight_decay, epsilon;
    double beta1, beta2; /* of Adam's moments */
    double rms_decay;    /* rmsprop */
    double trust;        /* lars */
    double clip_norm;    /* 0: gradients are not clipped */
    bool nesterov, decoupled_decay;
    int schedule;
    double decay_factor;  /* stepwise: rate *= factor at each of decay_at */
    const char *decay_at; /* stepwise, piecewise: epochs, commas */
    const char *rates;    /* piecewise: from each of decay_at on */
    double decay_power;   /* polynomial */
    double end_rate;      /* the least rate of stepwise, cosine and polynomial */
    double warmup_epochs; /* linearly up to the full rate */
    bool linear_scaling;  /* rate *= global batch / linear_base */
    int64_t linear_base;
};

/* Whether the rule has Adam's moments: two arrays of state, and a count of updates. */
static inline bool dpb_optimizer_has_moments(const struct dpb_optimizer_settings *settings)
{
    return settings->kind == DPB_ADAM || settings->kind == DPB_ADAMW || settings->kind == DPB_LAMB;
}
/* Whether each tensor has a rate of its own, by norms. */
static inline bool dpb_optimizer_by_tensor(const struct dpb_optimizer_settings *settings)
{
    return settings->kind == DPB_LARS || settings->kind == DPB_LAMB;
}

struct dpb_settings {
    struct dpb_run_settings run;
    struct {
        const char *name;
        int64_t nclass, image;
        double label_smoothing;
    } model;
    struct {
        const char *name;
        bool shuffle, shard;
        int64_t threads;
        int place; /* dpb_data_place */
    } data;
    struct {
        const char *name;
        int64_t threads;
    } device;
    struct {
        const char *name;
        uint64_t bucket;
        int gradient; /* 0: as the precision says; else dpb_dtype + 1 */
        const char *hosts, *codec;
        int64_t late; /* steps: 0 or 1 */
    } comm;
    struct dpb_optimizer_settings optimizer;
    struct {
        int64_t every;       /* steps; 0: never */
        double every_epochs; /* instead */
        int64_t batches;     /* of the test set; 0: all */
        double target;       /* accuracy; 0: none */
        double target_loss;  /* instead */
        int criterion;       /* dpb_criterion */
        bool final, require_target;
    } eval;
    struct {
        const char *load, *save, *at, *layout;
        int64_t every; /* steps; 0: never */
        int place;     /* dpb_checkpoint_place */
        bool resume, partial;
    } checkpoint;
    struct {
        const char *sizes;
        uint64_t min_bytes, max_bytes;
        int64_t step_factor, iterations, warmup_iterations, seconds_ns;
        int barrier;   /* dpb_barrier */
        int operation; /* dpb_collective */
        bool codecs;
    } comm_test;
};

/* Whether the training is saved at all. */
static inline bool dpb_saves(const struct dpb_settings *settings)
{
    return settings->checkpoint.save[0] || settings->checkpoint.place == DPB_CHECKPOINT_PEER;
}

extern const char *const dpb_collective_names[]; /* by dpb_collective; ended by NULL */
extern const char *const dpb_optimizer_names[];  /* by kind; ended by NULL */
/* Whether the update rule has optimizer.KEY. */
bool dpb_optimizer_has(const char *name, const char *key);
/* Gives settings that were not given the values that optimizer.name implies, as "derived". */
dpb_status dpb_settings_derive(const struct dpb_settings *settings, struct dpb_config *config);

#define DPB_TIMEOUT_NS INT64_C(60000000000) /* run.timeout_s, unless it is given */

/* Section names and their rows, in the order in which help shows them; offsets into dpb_settings.
 */
struct dpb_settings_section {
    const char *name, *summary;
    const struct dpb_option *rows;
};
extern const struct dpb_settings_section dpb_settings_sections[];
extern const size_t dpb_settings_n_sections;
/* The keys of [run] for its length; a run has one of them. Ended by NULL. */
extern const char *const dpb_run_lengths[];
bool dpb_is_run_length(const char *section, const char *key);
/* The rows of a section; NULL: core has none of this name. */
const struct dpb_option *dpb_settings_rows(const char *section);

#endif
