/*
 * shim.h - Gloo for C: a context that connects all workers, and collectives in place that are
 * prepared once and called in every step. Every exception ends here and becomes a text.
 *
 * One thread calls these functions, since all block as long as Gloo does. Exception: any thread may
 * call shim_break.
 */
#ifndef DPB_PLUGINS_COMM_GLOO_SHIM_H
#define DPB_PLUGINS_COMM_GLOO_SHIM_H

#include "dpbench/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gloo::allreduce has ring and bcube; the others are classes of their own. */
enum shim_algorithm { SHIM_RING, SHIM_BCUBE, SHIM_RING_CHUNKED, SHIM_HALVING_DOUBLING };

enum shim_transport { SHIM_TCP, SHIM_IBVERBS };

/* What a collective does with its memory. Slices are those of dpb_slice_of. */
enum shim_kind {
    SHIM_ALL_REDUCE,  /* sums all of it over the workers */
    SHIM_SUM_SLICES,  /* SHIM_TCP: sums the own slice; clears the others */
    SHIM_GIVE_SLICES, /* SHIM_TCP: gives the own slice to all, and gets theirs */
    SHIM_BROADCAST,   /* SHIM_TCP: those of rank 0 */
    SHIM_ALL_TO_ALL,  /* SHIM_TCP: slices are equal: those of this rank go into `into` */
    SHIM_GATHER,      /* messages: by shim_gather alone */
    SHIM_KINDS
};

enum { SHIM_TEXT_BYTES = 512 };

struct shim_args {
    const struct dpb_host *host;
    uint32_t rank, n_workers;
    enum shim_algorithm algorithm;
    enum shim_transport transport; /* SHIM_IBVERBS: takes only algorithms that are classes */
    const char *address;           /* SHIM_TCP: the interface's */
    const char *device; /* SHIM_IBVERBS; `port` is a number, `gid_index` the GID's place */
    int port, gid_index;
    uint64_t n_calls, bucket_elements;
    bool gathers; /* of messages: shim_gather alone is called, and nothing is prepared */
};

/* The memory of a collective. */
struct shim_part {
    void *data; /* @borrowed until shim_close, as `into` */
    uint64_t n; /* elements, at least 1 */
    dpb_dtype type;
    void *into; /* SHIM_ALL_TO_ALL: as long as `data` */
};

struct shim;

extern const char shim_version[];   /* of Gloo's headers */
extern const bool shim_has_ibverbs; /* whether Gloo was built with ibverbs */
/* Reads the version from the loaded file's name, since Gloo has no call for it; "?": none there. */
void shim_loaded_version(char *text, size_t size);

/* Collective: connects all workers by host->store. On failure there is no shim, and `why` has the
 * reason. `why` is empty if the host has written a message already. */
dpb_status shim_open(const struct shim_args *args, struct shim **shim, char why[SHIM_TEXT_BYTES]);
/* Call number `call`, below args->n_calls, is this collective. Prepare calls in the order of their
 * numbers, on all ranks. With ibverbs a connection holds the buffers of only one all-reduce, so all
 * parts are copied to and from one, of bucket_elements. */
dpb_status shim_prepare(struct shim *shim, uint64_t call, enum shim_kind kind,
                        const struct shim_part *part, char why[SHIM_TEXT_BYTES]);
/* Collective: makes the call. A failure is permanent: DPB_PEER; `why` names the ranks whose
 * connection is lost. */
dpb_status shim_make(struct shim *shim, uint64_t call, char why[SHIM_TEXT_BYTES]);
/* Collective: brings the bytes of each worker, at `first` + its rank * `stride`, to all workers.
 * `bytes` is at most that of bucket_elements in fp32, and equal on all. With ibverbs the most bytes
 * are always sent. Failures as above. */
dpb_status shim_gather(struct shim *shim, void *first, uint64_t stride, uint64_t bytes,
                       char why[SHIM_TEXT_BYTES]);
/* Closes the connections. Then Gloo touches no memory, except in a call under way, which fails soon
 * or blocks for ever. */
void shim_break(struct shim *shim);
/* Accepts NULL; no call is under way. With ibverbs the connections stay until the process ends. */
void shim_close(struct shim *shim);

#ifdef __cplusplus
}
#endif

#endif
