/*
 * predict.h - the step of W workers, simulated from the measured steps of one worker and the costs
 * of links. A pure module: no files, no clock, no random numbers.
 *
 * Backward makes gradients final bucket by bucket. Each bucket goes through stages: work on the
 * worker's thread, then service by a link, then latency. A thread and a link serve one bucket at a
 * time, in the order in which buckets come. All workers are alike but for the lengths of their
 * steps, so one worker and its links stand for all.
 *
 * Without a core for communication the thread looks after the exchange between backward's layers
 * and after backward. With one, a second thread does so at once.
 *
 * Accelerators exchange by a ring or by two trees (Sanders, Speck, Traff: Two-tree algorithms for
 * full bandwidth broadcast, reduction and scan. Parallel Computing 35(12), 2009), here whichever is
 * faster for a bucket by latency and bandwidth alone. Their libraries publish these algorithms, and
 * have channels, protocols and kernels, too, which are not here.
 *
 * Costs per stage: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations
 * in MPICH. IJHPCA 19(1), 2005 (ring); docs/predicting.md (all).
 */
#ifndef DPB_STUDY_PREDICT_PREDICT_H
#define DPB_STUDY_PREDICT_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpbench/status.h"

enum {
    DPB_PREDICT_WORKERS = 1 << 20,
    DPB_PREDICT_BUCKETS = 4096 /* of a model */
};

/* How a strategy exchanges. */
enum dpb_way {
    DPB_WAY_ALONE,
    DPB_WAY_MEMORY,        /* each worker sums its slice of every bucket in its peers' memory */
    DPB_WAY_RING,          /* all workers, machine by machine */
    DPB_WAY_HIERARCHICAL,  /* within machines by memory, across by rings of equal places */
    DPB_WAY_SERVERS,       /* parameter servers: processes on machines of their own, or shards */
    DPB_WAY_LOCAL_SERVERS, /* the same, after each machine's workers have summed in its memory */
    DPB_WAY_DEVICES,       /* a ring or two trees, on the devices */
    DPB_WAY_REPLICATED     /* within a machine: bucket i is summed on worker i mod W, copied back */
};

/* A machine's connection, both ways at once; or, within a machine, a worker's. */
struct dpb_cost {
    double bytes_per_s, latency_s; /* INFINITY, 0: it costs nothing */
};

/* The measurements of one worker: times of its mean step, communicator code left out. */
struct dpb_measured {
    const double *ready_s, *ready_bytes; /* gradients are final: both rise; [n_ready], >= 1 */
    size_t n_ready;
    double compute_s;       /* until backward's end: >= the last ready_s */
    double backward_s;      /* of compute_s; NAN: unknown */
    double update_s;        /* the optimizer, for all of the model */
    const double *factors;  /* lengths of single steps over their mean, rising; [n_factors], >= 1 */
    const double *delays_s; /* of these steps, before backward, rising; [n_factors]; NULL: none */
    size_t n_factors;
};

/* Messages of a codec, and the speed of the thread that makes and reads them. */
struct dpb_codec_cost {
    double ratio;              /* bytes of a message over those of gradients */
    double encode_bytes_per_s; /* of gradients */
    double decode_bytes_per_s; /* of gradients; NAN: messages are summed, and not decoded */
};

/*
 * uplink: N hosts, workers' machines and then those of server processes, are two halves. A cable
 * between the halves carries N/2 x rate / R each way. A stage takes at least the time of the bytes
 * that cross the cable each way. With B bytes of a bucket, W workers, L a machine, H machines, a
 * and b of them in the halves, k_a and k_b servers, these are:
 *
 *     a ring in the order of ranks, hierarchical   those of a link: one hop crosses each way
 *     servers in the workers                       a b L^2 B / W, pushed, and as much pulled
 *     k server processes                           pushed to those of the other half:
 *                                                  a L B k_b / k, and b L B k_a / k the other way
 *
 * So at R = 2 a ring of four hosts or more loses nothing, and servers do.
 */
struct dpb_prediction_case {
    enum dpb_way way;
    uint32_t workers, per_machine, servers; /* servers: 0: shards in the workers */
    double bucket_bytes;
    struct dpb_cost outside, inside; /* between machines; within one */
    struct dpb_cost
        host;    /* the worker's thread, for the bytes and for each message that it sends */
    bool helper; /* a core for communication */
    double compute_scale;        /* of all of the worker's own times but update_s */
    struct dpb_codec_cost codec; /* RING, SERVERS; ratio 0: none */
    double uplink;               /* R of R:1; 0: every link may be full at once */
    double shard; /* MEMORY, RING: comm.shard = optimizer: bytes of weights over those of
                     gradients; 0: without shards */
};

/* Whether the exchange goes from machine to machine. Each server process is on one of its own. */
bool dpb_predict_crosses(const struct dpb_prediction_case *c);

/* Means over steps, in seconds. */
struct dpb_predicted {
    double step_s;
    double own_s;     /* the slowest worker's computing and updating */
    double exposed_s; /* the rest: computing waits for the exchange */
};

/* One step, in which the slowest worker waits delay_s and its computing takes `factor` of the mean.
 * DPB_USAGE: more buckets than DPB_PREDICT_BUCKETS; DPB_NO_MEMORY. */
dpb_status dpb_predict_step(const struct dpb_measured *measured,
                            const struct dpb_prediction_case *c, double factor, double delay_s,
                            struct dpb_predicted *predicted);

/*
 * The mean over steps. Each worker's step is drawn from the measured ones. together: all workers
 * draw the same one; else each draws its own, and the slowest decides. This is the expectation of
 * resampling, without chance: the largest of W draws from n values is the i-th with probability
 * (i/n)^W - ((i-1)/n)^W. Where there are more than 16 values, steps in between are interpolated.
 */
dpb_status dpb_predict_mean(const struct dpb_measured *measured,
                            const struct dpb_prediction_case *c, bool together,
                            struct dpb_predicted *predicted);

/* The busiest link's time for the bytes of a step, without latency. Of the thread's work only
 * copies in memory count. */
double dpb_predict_link_s(const struct dpb_measured *measured, const struct dpb_prediction_case *c);

/*
 * A prediction's control, which knows only times and bytes: forward, then backward or the link's
 * time, whichever is longer, then the link's time of the last bucket, then the update. A prediction
 * that is not better than this one tells nothing.
 */
double dpb_predict_simple_s(const struct dpb_measured *measured,
                            const struct dpb_prediction_case *c);

/* The least bandwidth outside (within, where the exchange crosses nothing) at which exposed_s is at
 * most `share` of step_s; INFINITY: latency and work alone exceed it. 0: any link suffices. */
dpb_status dpb_predict_least_bandwidth(const struct dpb_measured *measured,
                                       const struct dpb_prediction_case *c, double share,
                                       double *bytes_per_s);

/*
 * Latency and bandwidth from measured exchanges: time[i] seconds for one bucket of bytes[i], by
 * `way` among `workers` machines of one worker each. Least squares of relative errors; DPB_USAGE:
 * fewer than 2 sizes, or no positive bandwidth fits. *error: the root mean square of the relative
 * errors.
 */
dpb_status dpb_predict_fit(const struct dpb_prediction_case *c, const double *bytes,
                           const double *time_s, size_t n, struct dpb_cost *cost, double *error);

#endif
