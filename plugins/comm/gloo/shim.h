/*
 * shim.h - Gloo, as C sees it: a context that connects all workers, and for each bucket an
 * all-reduce in place. Every exception ends here, as a text.
 *
 * Everything blocks, for as long as Gloo does, so one thread calls it; but for shim_break, which
 * any other may call.
 */
#ifndef DPB_PLUGINS_COMM_GLOO_SHIM_H
#define DPB_PLUGINS_COMM_GLOO_SHIM_H

#include "dpbench/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `ring` and `bcube` are those of gloo::allreduce; the others are classes of their own. */
enum shim_algorithm { SHIM_RING, SHIM_BCUBE, SHIM_RING_CHUNKED, SHIM_HALVING_DOUBLING };

enum shim_transport { SHIM_TCP, SHIM_IBVERBS };

enum { SHIM_TEXT_BYTES = 512 };

struct shim_args {
    const struct dpb_host *host;
    uint32_t rank, n_workers;
    enum shim_algorithm algorithm;
    enum shim_transport transport; /* SHIM_IBVERBS: of the algorithms the classes alone */
    const char *address;           /* SHIM_TCP: of the interface */
    const char *device;            /* SHIM_IBVERBS, with the port's number and the GID's place */
    int port, gid_index;
    dpb_dtype type; /* fp64, fp32, bf16, fp16 */
    uint64_t n_buckets, bucket_elements;
};

struct shim;

extern const char shim_version[];   /* of Gloo's headers */
extern const bool shim_has_ibverbs; /* whether it was built with that transport */
/* Gloo has no call that tells it: from the name of the file that was loaded, "?" if it has none. */
void shim_loaded_version(char *text, size_t size);

/* Collective: connects all workers by host->store. On failure there is no shim, and `why` says why;
 * it is empty where the host has written a message already. */
dpb_status shim_open(const struct shim_args *args, struct shim **shim, char why[SHIM_TEXT_BYTES]);
/* Bucket `bucket`, below args->n_buckets, is `n` elements at `data`, at least 1 and @borrowed until
 * shim_close; in order, on all ranks. By
 * ibverbs a connection holds the buffers of one all-reduce alone, so all buckets go through one, of
 * bucket_elements, and are copied there and back. */
dpb_status shim_prepare(struct shim *shim, uint64_t bucket, void *data, uint64_t n,
                        char why[SHIM_TEXT_BYTES]);
/* Collective: sums the bucket over the workers, in place. A failure is for ever, DPB_PEER; `why`
 * names the ranks to which the connection is lost. */
dpb_status shim_all_reduce(struct shim *shim, uint64_t bucket, char why[SHIM_TEXT_BYTES]);
/* Closes the connections. After it Gloo touches no bucket but in a call that is under way, which
 * fails soon, or waits for ever. */
void shim_break(struct shim *shim);
/* Accepts NULL; nothing is under way. By ibverbs the connections stay until the process ends. */
void shim_close(struct shim *shim);

#ifdef __cplusplus
}
#endif

#endif
