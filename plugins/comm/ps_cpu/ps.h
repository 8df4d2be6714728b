/*
 * ps.h - the common part of ps_cpu and ps_async: the state of a rank, its hooks, and the stages by
 * which a bucket goes from the workers to the shards and back. ps_cpu has links (links.h) only to
 * ranks of other machines, so none on one machine. ps_async has a link from each worker to each
 * server, and workers of it pull by these stages.
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_PS_H
#define DPB_PLUGINS_COMM_PS_CPU_PS_H

#include "comm/ps_cpu/links.h"
#include "comm/ps_cpu/ps_back.h"
#include "lib/tcp/tcp_connect.h"
#include "lib/verbs/options.h"

/* Indices into the choices of comm.transport. */
enum { PS_OVER_TCP, PS_OVER_VERBS };

struct ps_options {
    int transport;
    struct dpb_tcp_options tcp;
    struct verbs_options verbs; /* its interface is tcp.interface */
};

struct ps_cpu_options {
    struct ps_options ps;
    bool codec_back;
};

extern const char *const ps_transports[];

/* Rows of struct ps_options, for a struct that begins with one. */
#define PS_OPTION_ROWS(STRUCT, TRANSPORT)                                                    \
    DPB_OPTION_ROW("transport", CHOICE, NULL, "tcp", 0, 0, ps_transports, STRUCT, transport, \
                   TRANSPORT, NULL),                                                         \
        DPB_TCP_OPTION_ROWS(STRUCT, "comm.transport = tcp"),                                 \
        VERBS_OPTION_ROWS(STRUCT, "comm.transport = verbs")

/* ---- the strategy -------------------------------------------------------------------------- */

/* Servers read worker 0's notice, and each worker's at the end. It lies behind the signal page. */
struct ps_notice {
    struct dpb_step step; /* worker 0: of the exchange that its READY announces */
    uint32_t closed;      /* written before a last READY */
};

enum { PS_STAGES = 6 };

struct ps {
    struct dpb_strategy base;
    struct dpb_mesh_transport *transport; /* the links own it from links_open on */
    struct links *links;                  /* NULL: all ranks are on one machine */
    struct links_memory memory;           /* of the links */
    uint64_t notice_at, inbox_at;         /* offsets in the scratch */
    void *sum;                            /* for a piece; with a codec for a bucket */
    const void **sources;                 /* of `sum`: one a worker, and one more; or messages */
    bool asynchronous;                    /* this is ps_async */
    bool codes_back;                      /* by `back` */
    bool by_norms;                        /* shards update by norms of whole tensors */
    uint64_t squares_at;                  /* likewise, several: the place in the scratch */
    struct ps_back back;
    struct dpb_stage row[PS_STAGES]; /* of this rank */
    const struct dpb_stage *stages;  /* ps_async: a worker's two, in place of `row` */
    bool served;                     /* ps_async: this server has served the workers to their end */
};

extern const struct dpb_host *ps_host;

/* `open` of both strategies; *comm is a zeroed struct of `bytes` that begins with a struct ps.
 * `local_rank`: among the ranks of the machine. */
dpb_status ps_create(const struct ps_options *options, const struct dpb_comm_args *args,
                     uint32_t local_rank, size_t bytes, void **comm);
/* Hooks. */
dpb_status ps_needs(const void *options, struct dpb_comm_needs *needs);
/* For the hook `contract`: refuses a comm.port that is too high for `last`, the last rank with a
 * link. */
dpb_status ps_check(const struct ps_options *options, uint32_t last);
/* For the hook `contract`: refuses norms of tensors whose shards exchange no sums of squares, of
 * comm `comm`; `apart`: its servers do not make each update together. */
dpb_status ps_check_norms(const struct dpb_comm_args *args, const char *comm, bool apart);
dpb_status ps_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want);
dpb_status ps_bind(void *comm, const struct dpb_arenas *arenas);
dpb_status ps_load(void *comm);
dpb_status ps_begin(void *comm, const struct dpb_step *step);
void ps_close(void *comm);
/* Servers, before close: blocks until the network has taken everything for workers. */
dpb_status ps_serve_last(struct ps *ps);

/* Parts of a worker's stages. push: gradients may be pushed. pull: everything that the exchange
 * requests is here; ps_pull reports it. `ps` is a struct ps. */
bool ps_push_due(void *ps, uint64_t bucket);
dpb_status ps_push_wait(void *ps, uint64_t bucket);
bool ps_pull_due(void *ps, uint64_t bucket);
void ps_pull(void *ps, uint64_t bucket, struct dpb_stage_turn *turn);
dpb_status ps_pull_wait(void *ps, uint64_t bucket);

static inline struct ps_notice *ps_notice_of(const struct ps *ps, uint32_t rank)
{
    char *scratch = ps->base.arenas.peer_scratch[rank];
    return (struct ps_notice *)(void *)(scratch + ps->notice_at);
}

/* The most elements that a shard owns, by ps_slice. */
uint64_t ps_most_owned(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                       uint64_t bucket_elements);

#endif
